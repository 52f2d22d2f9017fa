/* SPDX-License-Identifier: BSD-3-Clause */
/* The tool's addresses: what is accepted is printed as a text that means the same, also by way of a socket address. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../tools/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[601], why[URL_WHY_MAX], out[URL_TEXT_MAX];
	struct url u, again;
	struct tool_addr a;
	int n;

	if (size >= sizeof(text))
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (url_parse(&u, text, why) != 0) {
		must(memchr(why, 0, sizeof(why)) != NULL);
		return 0;
	}
	n = url_format(&u, out);
	must(n > 0 && n < URL_TEXT_MAX && strlen(out) == (size_t)n);
	must(url_parse(&again, out, why) == 0);
	must(memcmp(&u, &again, sizeof(u)) == 0);
	/* Names would ask the name service, zones the system. */
	if (u.family != AF_UNSPEC && !u.zone[0] && url_resolve(&u, &a, 1, why) == 1) {
		must(url_of_addr(&again, &a) == 0);
		again.dgram = u.dgram; /* an address does not tell */
		must(memcmp(&u, &again, sizeof(u)) == 0);
	}
	return 0;
}
