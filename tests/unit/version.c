/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <gpunet/version.h>

static void library_and_headers_agree(void **state)
{
	char want[32];

	(void)state;
	snprintf(want, sizeof(want), "%d.%d.%d", GPUNET_VERSION_MAJOR, GPUNET_VERSION_MINOR,
		 GPUNET_VERSION_PATCH);
	assert_string_equal(gpunet_version(), want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(library_and_headers_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
