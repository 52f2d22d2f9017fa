/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding the driver: with each thing that can be wrong, count() says what it is and what helps. */
#include "cuda_stub.h"

#include "platform/cuda/driver.h"
#include "platform/platform.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct cuda_stub stub;
static int runtime; /* what the CUDA runtime in this program says it is; 0: it fails */

/* The program exports it, as one does that links the runtime dynamically. */
__attribute__((visibility("default"))) int cudaRuntimeGetVersion(int *version);

int cudaRuntimeGetVersion(int *version)
{
	*version = runtime;
	return runtime ? 0 : 999;
}

static int setup(void **state)
{
	(void)state;
	cuda_driver_forget();
	unsetenv("CUDA_VISIBLE_DEVICES");
	runtime = 0;
	return cuda_stub_use(&stub, STUB) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	cuda_driver_forget();
	stub.reset();
	return dlclose(stub.library);
}

/* count() gives 0 and its reason holds each of the words. */
static void none_because(const char *word, const char *remedy)
{
	char why[320] = "";

	assert_int_equal(platform_cuda.count(why, sizeof(why)), 0);
	if (!strstr(why, word) || !strstr(why, remedy))
		fail_msg("\"%s\" lacks \"%s\" or \"%s\"", why, word, remedy);
	/* The reason fits: it was not cut off. */
	assert_true(strlen(why) < sizeof(why) - 1);
}

static void counts_the_gpus(void **state)
{
	char why[320] = "";

	(void)state;
	assert_int_equal(platform_cuda.count(why, sizeof(why)), CUDA_STUB_DEVICES);
	assert_string_equal(why, "");
	assert_int_equal(stub.state->misuse, 0);
}

static void no_library(void **state)
{
	(void)state;
	setenv("GPUNET_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
	none_because("no NVIDIA driver", "install");
}

/* The one that is on this machine or, mostly, is not: no crash, and a reason if none. */
static void default_name(void **state)
{
	char why[320] = "";

	(void)state;
	unsetenv("GPUNET_LIBCUDA");
	if (platform_cuda.count(why, sizeof(why)) == 0)
		assert_true(strlen(why) > 20);
}

static void symbol_missing(void **state)
{
	(void)state;
	setenv("GPUNET_LIBCUDA", STUB_ANCIENT, 1);
	none_because("cuDevicePrimaryCtxRelease_v2", "newer driver");
}

static void driver_too_old(void **state)
{
	(void)state;
	stub.state->version = 10020;
	none_because("CUDA 10.2", "newer driver");
	/* Nothing was initialised. */
	assert_string_equal(stub.state->trace[stub.state->calls - 1], "cuDriverGetVersion");
}

static void runtime_newer_than_driver(void **state)
{
	(void)state;
	stub.state->version = 12080;
	runtime = 13000;
	none_because("CUDA 12.8", "newer driver");
	none_because("CUDA 13.0", "cuda-compat");
	/* Within a major version any runtime runs on any driver. */
	runtime = 12090;
	assert_int_equal(platform_cuda.count(NULL, 0), CUDA_STUB_DEVICES);
}

static void init_fails(void **state)
{
	static const struct {
		int code;
		const char *word, *remedy;
	} rows[] = {
		{ 34, "stub", "LD_LIBRARY_PATH" },       { 3, "CUDA error 3", "fork" },
		{ 46, "CUDA error 46", "exclusive" },    { 802, "CUDA error 802", "fabricmanager" },
		{ 803, "different versions", "reboot" }, { 804, "forward-compatibility", "remove" },
		{ 999, "CUDA_ERROR_UNKNOWN", "" },       { 31337, "CUDA error 31337", "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		stub.state->fail_call = "cuInit";
		stub.state->fail_code = rows[i].code;
		none_because(rows[i].word, rows[i].remedy);
		/* As NVIDIA's own stub library does, which answers this to every call. */
		stub.state->fail_call = "cuDriverGetVersion";
		cuda_driver_forget();
		none_because(rows[i].word, rows[i].remedy);
	}
}

static void failure_is_not_remembered(void **state)
{
	(void)state;
	stub.state->fail_call = "cuInit";
	stub.state->fail_code = 802;
	none_because("802", "");
	stub.state->fail_call = NULL;
	assert_int_equal(platform_cuda.count(NULL, 0), CUDA_STUB_DEVICES);
}

static void gpus_hidden(void **state)
{
	(void)state;
	stub.state->devices = 0;
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	none_because("CUDA_VISIBLE_DEVICES is set and empty", "unset");
	setenv("CUDA_VISIBLE_DEVICES", "7", 1);
	none_because("CUDA_VISIBLE_DEVICES=7", "unset");
	unsetenv("CUDA_VISIBLE_DEVICES");
	none_because("", "");
}

static void list_is_empty(void **state)
{
	(void)state;
	assert_int_equal(platform_cuda.count(NULL, 0), CUDA_STUB_DEVICES);
	stub.state->devices = 0;
	none_because("lists no GPU", "count 0");
	stub.state->fail_call = "cuDeviceGetCount";
	stub.state->fail_code = 999;
	none_because("lists no GPU", "CUDA_ERROR_UNKNOWN");
}

static void open_says_why(void **state)
{
	struct platform_dev *dev = NULL;

	(void)state;
	stub.state->fail_call = "cuInit";
	stub.state->fail_code = 34;
	assert_int_equal(platform_cuda.open(0, NULL, &dev), -ENODEV);
	assert_null(dev);
}

/* The toolkit's own stub for linking, where a toolkit is installed. */
static void toolkit_stub(void **state)
{
	(void)state;
#ifdef TOOLKIT_STUB
	setenv("GPUNET_LIBCUDA", TOOLKIT_STUB, 1);
	none_because("CUDA error 34", "LD_LIBRARY_PATH");
#else
	skip();
#endif
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(counts_the_gpus), TEST(no_library),
		TEST(default_name),    TEST(symbol_missing),
		TEST(driver_too_old),  TEST(runtime_newer_than_driver),
		TEST(init_fails),      TEST(failure_is_not_remembered),
		TEST(gpus_hidden),     TEST(list_is_empty),
		TEST(open_says_why),   TEST(toolkit_stub),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
