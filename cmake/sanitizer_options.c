/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sanitizers' options, linked into every program of a sanitizer build, so that a test run by hand
 * behaves as one run by ctest. The environment (ASAN_OPTIONS …) still overrides them.
 */

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
const char *__tsan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
	/* Fibers leave their stack without returning: a fake stack would outlive its frame. */
	return "detect_stack_use_after_return=0:strict_string_checks=1:detect_leaks=1";
}

__attribute__((visibility("default"))) const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1:halt_on_error=1";
}

__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
	return "halt_on_error=1:second_deadlock_stack=1:history_size=4";
}
