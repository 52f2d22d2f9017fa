/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_API_H
#define GPUNET_API_H

/*
 * The library is built with hidden visibility: what a public header declares between
 * GPUNET_BEGIN_DECLS and GPUNET_END_DECLS is exported. Its name begins with gpunet_, since
 * src/gpunet.map lets nothing else out.
 */
#ifdef __cplusplus
#define GPUNET_BEGIN_DECLS                                 \
	_Pragma("GCC visibility push(default)") extern "C" \
	{
#define GPUNET_END_DECLS \
	}                \
	_Pragma("GCC visibility pop")
#else
#define GPUNET_BEGIN_DECLS _Pragma("GCC visibility push(default)")
#define GPUNET_END_DECLS _Pragma("GCC visibility pop")
#endif

#endif
