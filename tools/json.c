/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <stdio.h>

#include "tool.h"

int tool_report(int argc, char **argv, void (*help)(void), int (*report)(bool json))
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'h':
			help();
			return TOOL_DONE;
		default:
			tool_try_help();
			return TOOL_USAGE;
		}
	}
	if (optind != argc)
		return tool_usage("%s: no argument is needed", argv[optind]);
	return report(json);
}

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
