/* SPDX-License-Identifier: BSD-3-Clause */
#include <gpunet/version.h>

#define STRING(x) #x
#define DOTTED(a, b, c) STRING(a) "." STRING(b) "." STRING(c)

const char *gpunet_version(void)
{
	return DOTTED(GPUNET_VERSION_MAJOR, GPUNET_VERSION_MINOR, GPUNET_VERSION_PATCH);
}
