/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel API of the GPUnet that was published in 2014, for kernels that were written for it: they build unchanged, for a
 * GPU and for the CPU device, and talk to any program. New kernels use gpunet/dev/socket.h.
 *
 * A kernel of that time names no network, so the host says which one is meant, once for each source file with such kernels (each
 * has its own variable), before the first of them is resident:
 *
 *	gpunet_2014_use(g);                     then any launch, <<<...>>> too; or, on both devices:
 *
 *	GPUNET_2014_KERNEL(server, struct sockaddr_in *, int)          at file scope, before or after the kernel
 *	GPUNET_2014_LAUNCH(g, server, grid, addr, 5);                  uses g, and launches with up to 8 arguments
 *
 * Kernels of the CPU device are C (docs/subset.md; __device__, __global__ and __forceinline__ are there) or C++.
 *
 * By all threads of the block; inside BEGIN_SINGLE_THREAD_PART ... END_SINGLE_THREAD_PART by that one thread:
 *   int gconnect_in(const struct sockaddr_in *addr)         also as gconnect_ib, gconnect_bounce_in
 *   int gconnect(const char *path, int len)                 UNIX socket; len without the terminating 0
 *   int gaccept(int sock), int gaccept_nb(int sock)         _nb: -EAGAIN if no connection is there
 *   int gsend(int sock, const void *buf, int size)          all of it; a socket that does not block: what there is room for
 *   int grecv(int sock, void *buf, int size)                what has come, at most size
 *   int grecv_nb(int sock, void *buf, int size)             -EAGAIN if nothing has come
 *   void gsetsock_block(int sock, int blocking), int ggetsock_block(int sock)     of gsend and grecv
 *   int gpoll(struct gpollfd *fds, size_t n, int clocks)    POLLIN, POLLOUT, ... of <poll.h>
 *   void ggettimeofday(struct gtimeval *tv), void gtimersub(a, b, difference)
 * By one thread:
 *   int gsocket(int domain, int type, int protocol)
 *   int single_thread_gbind_in(const struct sockaddr_in *addr)     binds and listens; also single_thread_gbind_bounce_in
 *   int single_thread_gbind(const char *path, int len)
 *   int single_thread_gshutdown(int sock, int how = SHUT_RDWR), int single_thread_gclose(int sock)
 *
 * Results are a descriptor, a count or 0, or a negative errno (gpunet/dev/socket.h); -ENETDOWN: no network was set.
 *
 * What differs from the original:
 *   - Errors are results where the original had assertions. Descriptors are large numbers, none is 0.
 *   - The end of the stream: grecv returns 0 once, and -EPIPE from then on. The original knew no end; loops that add up what is not
 *     negative end by the second.
 *   - After gpunet_abort gconnect, gconnect_in and gaccept_nb return a descriptor with which every call fails, so that
 *     "while ((s = gconnect_in(addr)) < 0);" ends. Everything else is negative then. A connect that failed takes 50 us at least.
 *   - gsend of a blocking socket sends everything. gsetsock_block(sock, 1) makes a socket block again.
 *   - gpoll returns how many descriptors have an event that was asked for (or POLLERR, POLLHUP, POLLNVAL), not 1, and waits for
 *     those only; rbytes and wbytes are set whatever was asked for. As in the original, clocks <= 0 is no limit, a negative descriptor
 *     is POLLNVAL. On the CPU device a clock is a nanosecond. A listener has POLLIN and no rbytes.
 *   - The calls use up to 168 registers a thread of an sm_90: kernels for blocks of more than 384 threads need __launch_bounds__.
 *   - ggettimeofday has no fixed origin; only differences mean something.
 *   - Not there: gsynclaunch, gasynclaunch, gaio, gputs, gprintf4_single, the FS and host parts.
 *
 * The names are macros with the arguments above. (gsend)(net, fd, buf, len, flags), in parentheses, is the function of
 * gpunet/dev/socket.h, which must not be included for the first time after this header's macros: it never is, for this
 * header includes it.
 */
#ifndef GPUNET_COMPAT_GPUNET2014_H
#define GPUNET_COMPAT_GPUNET2014_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>

#include <gpunet/dev/impl/compat2014.h>
#include <gpunet/gpunet.h>

typedef unsigned char uchar;

#ifndef __CUDACC__
#ifndef __global__
#define __global__
#endif
#ifndef __device__
#define __device__ __attribute__((unused))
#endif
#ifndef __forceinline__
#define __forceinline__ inline
#endif
#endif

/* ---- host ------------------------------------------------------------------------------------------------------------ */

/*
 * Kernels of this source file now use network `g`; NULL: none. On a GPU the device of `g` is the current one, and the first
 * call for a network waits for what is on the default stream: call it before a kernel is resident. 0 or -EIO.
 */
static inline int gpunet_2014_use(gpunet_t *g)
{
	gnet_t *net = g ? gpunet_device(g) : 0;

#ifdef __CUDACC__
	static gnet_t *used;

	if (net == used)
		return 0;
	if (cudaMemcpyToSymbol(gnet__2014_net, &net, sizeof(net)) != cudaSuccess)
		return -EIO;
	used = net;
#else
	gnet__2014_net = net;
#endif
	return 0;
}

/* GPUNET_2014_KERNEL(kernel, types of its parameters): declares it and how it is launched. */
#define GPUNET_2014_KERNEL(kernel, ...)                                                           \
	struct kernel##_args {                                                                    \
		GNET_2014_EACH_(GNET_2014_MEMBER_, GNET_2014_NOTHING_, __VA_ARGS__)               \
	};                                                                                        \
	__global__ void kernel(__VA_ARGS__);                                                      \
	GNET_2014_START_(kernel, __VA_ARGS__)                                                     \
	static inline int kernel##_launch(gpunet_t *g_, const struct gpunet_grid *grid_,          \
					  GNET_2014_EACH_(GNET_2014_PARAMETER_, GNET_2014_COMMA_, \
							  __VA_ARGS__))                           \
	{                                                                                         \
		struct kernel##_args args_ = { GNET_2014_EACH_(GNET_2014_NAME_, GNET_2014_COMMA_, \
							       __VA_ARGS__) };                    \
		int rc_ = gpunet_2014_use(g_);                                                    \
                                                                                                  \
		return rc_ ? rc_ : kernel##_start(g_, grid_, &args_);                             \
	}                                                                                         \
	extern int gnet_2014_semicolon

/* GPUNET_2014_LAUNCH(g, kernel, grid, arguments): 0 or a negative errno. `grid` is a struct gpunet_grid. */
#define GPUNET_2014_LAUNCH(g, kernel, grid, ...) kernel##_launch(g, &(grid), __VA_ARGS__)

#ifdef __CUDACC__
#define GNET_2014_START_(kernel, ...)                                                   \
	static inline int kernel##_start(gpunet_t *g_, const struct gpunet_grid *n_,    \
					 struct kernel##_args *a_)                      \
	{                                                                               \
		void *argv_[] = { GNET_2014_EACH_(GNET_2014_ADDRESS_, GNET_2014_COMMA_, \
						  __VA_ARGS__) };                       \
                                                                                        \
		return gpunet_2014_launch_cuda(g_, (const void *)(kernel), n_, argv_);  \
	}

static inline int gpunet_2014_launch_cuda(gpunet_t *g, const void *kernel,
					  const struct gpunet_grid *n, void **argv)
{
	dim3 grid(n->grid_x ? n->grid_x : 1, n->grid_y ? n->grid_y : 1, n->grid_z ? n->grid_z : 1);
	dim3 block(n->block_x ? n->block_x : 1, n->block_y ? n->block_y : 1,
		   n->block_z ? n->block_z : 1);

	if (!gpunet_stream(g))
		return -EINVAL;
	return cudaLaunchKernel(kernel, grid, block, argv, n->shared,
				(cudaStream_t)gpunet_stream(g)) == cudaSuccess
		       ? 0
		       : -EIO;
}
#else
/* The entry has the name that GPUNET_PREPARE knows. */
#define GNET_2014_START_(kernel, ...)                                                     \
	GNET_CPU_LINKAGE void kernel##_entry(void *args_);                                \
	GNET_CPU_LINKAGE void kernel##_entry(void *args_)                                 \
	{                                                                                 \
		struct kernel##_args *a_ = (struct kernel##_args *)args_;                 \
                                                                                          \
		kernel(GNET_2014_EACH_(GNET_2014_VALUE_, GNET_2014_COMMA_, __VA_ARGS__)); \
	}                                                                                 \
	static inline int kernel##_start(gpunet_t *g_, const struct gpunet_grid *n_,      \
					 struct kernel##_args *a_)                        \
	{                                                                                 \
		return gpunet_launch_cpu(g_, kernel##_entry, n_, a_, sizeof(*a_));        \
	}
#endif

/* Up to eight types: GNET_2014_EACH_(what, between, T0, T1, ...) is what(T0, p0) between what(T1, p1) ... */
#define GNET_2014_NOTHING_()
#define GNET_2014_COMMA_() ,
#define GNET_2014_MEMBER_(type, name) type name;
#define GNET_2014_PARAMETER_(type, name) type name
#define GNET_2014_NAME_(type, name) name
#define GNET_2014_VALUE_(type, name) a_->name
#define GNET_2014_ADDRESS_(type, name) &a_->name
#define GNET_2014_NTH_(a, b, c, d, e, f, g, h, n, ...) n
#define GNET_2014_EACH_(what, between, ...)                                                 \
	GNET_2014_NTH_(__VA_ARGS__, GNET_2014_8_, GNET_2014_7_, GNET_2014_6_, GNET_2014_5_, \
		       GNET_2014_4_, GNET_2014_3_, GNET_2014_2_, GNET_2014_1_, 0)           \
	(what, between, __VA_ARGS__)
#define GNET_2014_1_(w, b, t) w(t, p0)
#define GNET_2014_2_(w, b, t, u) GNET_2014_1_(w, b, t) b() w(u, p1)
#define GNET_2014_3_(w, b, t, u, v) GNET_2014_2_(w, b, t, u) b() w(v, p2)
#define GNET_2014_4_(w, b, t, u, v, x) GNET_2014_3_(w, b, t, u, v) b() w(x, p3)
#define GNET_2014_5_(w, b, t, u, v, x, y) GNET_2014_4_(w, b, t, u, v, x) b() w(y, p4)
#define GNET_2014_6_(w, b, t, u, v, x, y, z) GNET_2014_5_(w, b, t, u, v, x, y) b() w(z, p5)
#define GNET_2014_7_(w, b, t, u, v, x, y, z, a) GNET_2014_6_(w, b, t, u, v, x, y, z) b() w(a, p6)
#define GNET_2014_8_(w, b, t, u, v, x, y, z, a, c) \
	GNET_2014_7_(w, b, t, u, v, x, y, z, a) b() w(c, p7)

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

/*
 * A part that one thread runs. Calls in it know by the size of a type that it hides an outer one of the same name, so
 * that a gaccept inside, which one of the published programs has, does not wait at a barrier for the others.
 */
struct gnet_2014_scope_ {
	char who[GNET__BLOCK + 1];
};

/* clang-format off */
#define GNET_2014_ALONE_                                      \
	_Pragma("GCC diagnostic push")                        \
	_Pragma("GCC diagnostic ignored \"-Wshadow\"")        \
	struct gnet_2014_scope_ { char who[GNET__THREAD + 1]; }; \
	_Pragma("GCC diagnostic pop")
/* clang-format on */

#define BEGIN_SINGLE_THREAD_PART \
	__syncthreads();         \
	if (gnet__tid() == 0) {  \
		GNET_2014_ALONE_ \
		do
#define END_SINGLE_THREAD_PART \
	while (0)              \
		;              \
	}                      \
	__syncthreads()
#define BEGIN_SINGLE_THREAD      \
	BEGIN_SINGLE_THREAD_PART \
	{
#define END_SINGLE_THREAD \
	}                 \
	END_SINGLE_THREAD_PART;
#define GNET_2014_KIND_ ((int)sizeof(struct gnet_2014_scope_) - 1)

#define gsocket(domain, type, protocol) gnet2014_socket(domain, type, protocol)
#define gconnect_in(addr) gnet2014_gconnect_in(GNET_2014_KIND_, addr)
#define gconnect_ib(addr) gconnect_in(addr)
#define gconnect_bounce_in(addr) gconnect_in(addr)
#define gconnect(path, len) gnet2014_gconnect(GNET_2014_KIND_, path, len)
#define single_thread_gbind_in(addr) gnet2014_bind_in(addr)
#define single_thread_gbind_bounce_in(addr) gnet2014_bind_in(addr)
#define single_thread_gbind(path, len) gnet2014_bind_un(path, len)
#define gaccept(sock) gnet2014_gaccept(GNET_2014_KIND_, sock)
#define gaccept_nb(sock) gnet2014_gaccept_nb(GNET_2014_KIND_, sock)
#define gsend(sock, buf, size) gnet2014_gsend(GNET_2014_KIND_, sock, buf, size)
#define grecv(sock, buf, size) gnet2014_grecv(GNET_2014_KIND_, sock, buf, size, 0)
#define grecv_nb(sock, buf, size) \
	gnet2014_grecv(GNET_2014_KIND_, sock, buf, size, GNET_MSG_DONTWAIT)
#define single_thread_gshutdown(...) GNET_2014_SHUTDOWN_(__VA_ARGS__, GNET_SHUT_RDWR, 0)
#define GNET_2014_SHUTDOWN_(sock, how, ...) gnet2014_shutdown(sock, how)
#define single_thread_gclose(sock) gnet2014_close(sock)
#define gsetsock_block(sock, blocking) \
	((void)gnet2014_gsetsock_block(GNET_2014_KIND_, sock, blocking))
#define ggetsock_block(sock) gnet2014_ggetsock_block(GNET_2014_KIND_, sock)
#define gpoll(fds, n, clocks) gnet2014_gpoll(GNET_2014_KIND_, fds, n, clocks)
#define ggettimeofday(tv) ((void)gnet2014_ggettimeofday(GNET_2014_KIND_, tv))

#endif
