/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <gpunet/gpunet.h>

static void library_and_headers_agree(void **state)
{
	char want[32];

	(void)state;
	snprintf(want, sizeof(want), "%d.%d.%d", GPUNET_VERSION_MAJOR, GPUNET_VERSION_MINOR,
		 GPUNET_VERSION_PATCH);
	assert_string_equal(gpunet_version(), want);
}

static void headers_of_the_library_open(void **state)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	gpunet_t *g = NULL;

	(void)state;
	o.device = "cpu";
	assert_int_equal(gpunet_open(&g, &o), 0);
	assert_int_equal(gpunet_close(g, 1000), 0);
	assert_int_equal((gpunet_open)(&g, &o), 0);
	assert_int_equal(gpunet_close(g, 1000), 0);
}

/* As in a program that was compiled with the headers of the version before. */
enum { ours = GNET_ABI_VERSION };
#undef GNET_ABI_VERSION
#define GNET_ABI_VERSION (ours - 1u)

static void headers_of_another_version_do_not(void **state)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	char want[32];
	gpunet_t *g = NULL;

	(void)state;
	o.device = "cpu";
	assert_int_equal(gpunet_open(&g, &o), -EPROTO);
	assert_null(g);
	for (unsigned abi = ours - 1; abi <= ours; abi++) {
		snprintf(want, sizeof(want), "ABI %u", abi);
		assert_non_null(strstr(gpunet_last_error(), want));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(library_and_headers_agree),
		cmocka_unit_test(headers_of_the_library_open),
		cmocka_unit_test(headers_of_another_version_do_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
