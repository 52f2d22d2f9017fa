/* SPDX-License-Identifier: BSD-3-Clause */
/* Each provider's table is whole, and the choice of a provider says why. */
#include <errno.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "verbs/verbs.h"

static void every_slot_is_filled(const struct verbs_ops *ops)
{
	void *const *slot = (void *const *)(const void *)ops;
	size_t i;

	for (i = 0; i < sizeof(*ops) / sizeof(*slot); i++) {
		if (!slot[i])
			fail_msg("slot %zu of provider %s is empty", i, ops->name);
	}
}

static void tables_are_whole(void **state)
{
	unsigned i;

	(void)state;
	every_slot_is_filled(&verbs_dummy);
	for (i = 0; verbs_all[i]; i++)
		every_slot_is_filled(verbs_all[i]);
}

static void unknown_names_are_refused(void **state)
{
	struct verbs_use u;

	(void)state;
	assert_int_equal(verbs_open(&u, "infiniband9000"), -EINVAL);
	assert_non_null(strstr(u.why, "infiniband9000"));
	assert_null(u.ops);
	setenv("GPUNET_VERBS", "from_env", 1);
	assert_int_equal(verbs_open(&u, NULL), -EINVAL);
	assert_non_null(strstr(u.why, "from_env"));
	unsetenv("GPUNET_VERBS");
	verbs_close(&u);
}

/* Whether a provider opens depends on the machine; that there is a reason does not. */
static void the_choice_has_a_reason(void **state)
{
	struct verbs_use u;
	int rc;

	(void)state;
	rc = verbs_open(&u, "auto");
	assert_true(rc <= 0);
	assert_true((rc == 0) == (u.ops != NULL));
	assert_true(strlen(u.why) > 0);
	/* What works is named first, whatever others lack. */
	if (rc == 0)
		assert_ptr_equal(strstr(u.why, u.ops->name), u.why);
	verbs_close(&u);
	assert_null(u.ops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_are_whole),
		cmocka_unit_test(unknown_names_are_refused),
		cmocka_unit_test(the_choice_has_a_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
