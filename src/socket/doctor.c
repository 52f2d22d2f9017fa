/* SPDX-License-Identifier: BSD-3-Clause */
/* What this machine has of what a user may need. */
#include "socket/net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/sys.h"

struct report {
	int (*fn)(const struct gpunet_check *c, void *arg);
	void *arg;
	int rc;
};

static void tell(struct report *r, const char *name, enum gpunet_status status, const char *detail,
		 const char *remedy)
{
	struct gpunet_check c = { name, status, detail, remedy };

	if (!r->rc)
		r->rc = r->fn(&c, r->arg);
}

/* Where RDMA would have its rings on this device. A device whose memory is the CPU's has no choice, and no line. */
static void check_rings(struct report *r, const struct platform_ops *p)
{
	struct platform_params pp = { .size = sizeof(pp) };
	struct platform_near mem;
	struct channel_near near = { .fd = -1 };
	struct platform_dev *dev;
	int rc;

	if (r->rc || p == &platform_cpu || !channel_near_wanted(NULL) || p->open(0, &pp, &dev))
		return;
	rc = p->near_alloc(dev, (size_t)64 << 10, &mem);
	snprintf(near.why, sizeof(near.why), "%s", mem.why);
	if (!rc) {
		near.n = 1;
		near.size = mem.size;
		near.dev = mem.dev;
		near.bus = mem.bus;
		near.fd = mem.fd;
		near.fd_offset = mem.fd_offset;
	}
	r->rc = channel_near_doctor(&near, r->fn, r->arg);
	if (!rc)
		p->near_free(dev, &mem);
	p->close(dev);
}

static void check_device(struct report *r, const struct platform_ops *p, const char *name,
			 bool optional)
{
	struct platform_info info;
	char why[320] = "", detail[512], first[48] = "";
	int n = p->count(why, sizeof(why));

	if (n <= 0) {
		tell(r, name, GPUNET_MISSING, why,
		     optional ? "for kernels on a GPU only: without one they run on the CPU device"
			      : "");
		return;
	}
	if (p->look(0, &info)) {
		tell(r, name, GPUNET_MISSING, log_last(),
		     "a device is there but cannot be used: see its error");
		return;
	}
	if (n > 1)
		snprintf(first, sizeof(first), "%d devices, the first: ", n);
	snprintf(detail, sizeof(detail), "%s%s; %s", first, info.name, info.detail);
	tell(r, name, GPUNET_OK, detail, "");
	if (info.lazy_loading >= 0)
		tell(r, "cuda module loading", GPUNET_OK, info.lazy_loading ? "lazy" : "eager",
		     info.lazy_loading ? "load kernels with GPUNET_PREPARE before one is resident"
				       : "");
	check_rings(r, p);
}

static void check_memlock(struct report *r)
{
	struct rlimit l;
	char detail[96];

	if (getrlimit(RLIMIT_MEMLOCK, &l))
		return;
	if (l.rlim_cur == RLIM_INFINITY) {
		tell(r, "pinned memory limit", GPUNET_OK, "unlimited", "");
		return;
	}
	snprintf(detail, sizeof(detail), "RLIMIT_MEMLOCK is %llu KiB",
		 (unsigned long long)l.rlim_cur >> 10);
	tell(r, "pinned memory limit", GPUNET_OK, detail,
	     "RDMA will need more: ulimit -l unlimited");
}

static void check_files(struct report *r)
{
	struct rlimit l;
	char detail[96];

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	snprintf(detail, sizeof(detail), "RLIMIT_NOFILE is %llu (one a socket)",
		 (unsigned long long)l.rlim_cur);
	tell(r, "open files limit", l.rlim_cur < 1024 ? GPUNET_LIMITED : GPUNET_OK, detail,
	     l.rlim_cur < 1024 ? "raise it with ulimit -n" : "");
}

static void check_transport(struct report *r, const char *name, int domain, int type)
{
	int fd = sys.socket(domain, type | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		tell(r, name, GPUNET_MISSING, strerror(-fd),
		     "the kernel or a sandbox forbids sockets of this kind");
		return;
	}
	sys.close(fd);
	tell(r, name, GPUNET_OK, "sockets of the kernel, by the proxy", "");
}

static void check_ring(struct report *r)
{
	static const char name[] = "io_uring";
	struct sys_ring *ring;
	char detail[128];
	int rc = sys.ring_open(&ring);

	if (!rc) {
		sys.ring_close(ring);
		tell(r, name, GPUNET_OK, "messages of many sockets go by one system call", "");
	} else if (rc == -ENOPKG) {
		tell(r, name, GPUNET_NOT_BUILT, "a system call a socket",
		     "build where there is <linux/io_uring.h>");
	} else {
		snprintf(detail, sizeof(detail), "a system call a socket: %s", strerror(-rc));
		tell(r, name, GPUNET_LIMITED, detail,
		     "sysctl kernel.io_uring_disabled=0; in a container, a seccomp profile that allows it");
	}
}

int gpunet_doctor(int (*fn)(const struct gpunet_check *c, void *arg), void *arg)
{
	struct report r = { fn, arg, 0 };

	if (!fn)
		return log_error(-EINVAL, "gpunet_doctor needs a function to call");
	check_device(&r, &platform_cpu, "cpu device", false);
	check_device(&r, &platform_cuda, "cuda device", true);
	check_memlock(&r);
	check_files(&r);
	check_transport(&r, "transport tcp (IPv4)", AF_INET, SOCK_STREAM);
	check_transport(&r, "transport tcp (IPv6)", AF_INET6, SOCK_STREAM);
	check_transport(&r, "transport udp", AF_INET, SOCK_DGRAM);
	check_transport(&r, "transport unix", AF_UNIX, SOCK_STREAM);
	check_ring(&r);
	if (!r.rc)
		r.rc = channel_doctor(fn, arg);
	return r.rc;
}
