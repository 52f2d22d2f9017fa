/* SPDX-License-Identifier: BSD-3-Clause */
/* The HTTP example's reader of requests, which gets its bytes from anybody. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/http/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* On the heap at its exact size, so that one byte too many is seen. */
	char *head = malloc(size ? size : 1);
	struct http_text text = { head, head + size };
	struct http_request r;

	if (!head)
		return 0;
	if (size)
		memcpy(head, data, size);
	memset(&r, 0xff, sizeof(r));
	http_parse(&r, text);
	must(r.status == 0 || r.status == 200 || (r.status >= 400 && r.status < 600));
	must(r.head == 0 || r.head == 1);
	must(r.keep_alive == 0 || r.keep_alive == 1);
	must(r.page >= HTTP_PAGE_NONE && r.page <= HTTP_PAGE_HELLO);
	/* Only a right request is answered with a page; after a wrong one nothing more can be read. */
	must(r.status != 200 || r.page != HTTP_PAGE_NONE);
	must(r.keep_alive == 0 || r.status == 0 || r.status == 200 || r.status == 404);
	free(head);
	return 0;
}
