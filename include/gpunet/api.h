/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_API_H
#define GPUNET_API_H

/*
 * The library is built with hidden visibility: what it exports says GPUNET_API at its declaration
 * and begins with gpunet_ (src/gpunet.map lets nothing else out).
 */
#define GPUNET_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define GPUNET_BEGIN_DECLS extern "C" {
#define GPUNET_END_DECLS }
#else
#define GPUNET_BEGIN_DECLS
#define GPUNET_END_DECLS
#endif

#endif
