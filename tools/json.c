/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "tool.h"

void json_string(const char *text)
{
	const unsigned char *p;

	putchar('"');
	for (p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			printf("\\%c", *p);
		else if (*p < ' ' || *p == 0x7f)
			printf("\\u%04x", *p);
		else
			putchar(*p);
	}
	putchar('"');
}

void json_member(bool first, const char *key, const char *text)
{
	if (!first)
		putchar(',');
	json_string(key);
	putchar(':');
	json_string(text);
}
