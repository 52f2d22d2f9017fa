/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs/rnic/internal.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/log.h"
#include "base/sys.h"
#include "wire/frame.h"
#include "wire/roce.h"

enum { HEADERS = 80 }; /* as host.c counts them */

int vaddr_from_sockaddr(const struct sockaddr *a, socklen_t n, uint8_t gid[16], uint32_t *scope,
			uint16_t *port, bool *any)
{
	struct sockaddr_in6 in6;
	struct sockaddr_in in;

	if (n >= (socklen_t)sizeof(in) && a->sa_family == AF_INET) {
		memcpy(&in, a, sizeof(in));
		wire_gid_from_v4(gid, (const uint8_t *)&in.sin_addr);
		*scope = 0;
		*port = ntohs(in.sin_port);
		*any = in.sin_addr.s_addr == htonl(INADDR_ANY);
		return 0;
	}
	if (n >= (socklen_t)sizeof(in6) && a->sa_family == AF_INET6) {
		memcpy(&in6, a, sizeof(in6));
		memcpy(gid, &in6.sin6_addr, 16);
		*scope = IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) ? in6.sin6_scope_id : 0;
		*port = ntohs(in6.sin6_port);
		*any = IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr);
		return 0;
	}
	return -EAFNOSUPPORT;
}

socklen_t vaddr_to_sockaddr(const uint8_t gid[16], uint32_t scope, uint16_t port, int family,
			    struct sockaddr_storage *out)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in in = { .sin_family = AF_INET };

	memset(out, 0, sizeof(*out));
	if (family == AF_INET) {
		in.sin_port = htons(port);
		memcpy(&in.sin_addr, gid + 12, 4);
		memcpy(out, &in, sizeof(in));
		return sizeof(in);
	}
	in6.sin6_port = htons(port);
	in6.sin6_scope_id = scope;
	memcpy(&in6.sin6_addr, gid, 16);
	memcpy(out, &in6, sizeof(in6));
	return sizeof(in6);
}

static unsigned mtu_of(const char *name)
{
	struct ifreq req = { .ifr_mtu = 0 };
	int fd = sys.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return 1500;
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	rc = ioctl(fd, SIOCGIFMTU, &req);
	sys.close(fd);
	return rc ? 1500 : (unsigned)req.ifr_mtu;
}

unsigned vaddr_forced_mtu(void)
{
	static _Atomic bool told;
	const char *text = getenv("GPUNET_RNIC_MTU");
	size_t digits = text ? strspn(text, "0123456789") : 0;
	unsigned mtu = 0, n = 0;

	if (!text || !*text)
		return 0;
	if (digits < 10 && !text[digits])
		n = (unsigned)strtoul(text, NULL, 10);
	if (n <= WIRE_MTU_MAX)
		mtu = wire_mtu_bytes(wire_mtu_code(n));
	/* Asked at each look at the interfaces, told once. */
	if (!mtu && !atomic_exchange(&told, true))
		log_line(
			LOG_WARN,
			"GPUNET_RNIC_MTU=%s is no number of bytes from 256 to 4096; peers are asked",
			text);
	return mtu;
}

/* All of it but the MTU, for which the kernel must be asked. */
static bool take(struct vaddr *v, const struct ifaddrs *i)
{
	uint16_t port;
	socklen_t n;
	bool any;

	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
		return false;
	n = i->ifa_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					       : sizeof(struct sockaddr_in);
	memset(v, 0, sizeof(*v));
	if (vaddr_from_sockaddr(i->ifa_addr, n, v->gid, &v->scope, &port, &any) || any)
		return false;
	strncpy(v->dev, i->ifa_name, sizeof(v->dev) - 1);
	v->up = i->ifa_flags & IFF_RUNNING;
	return true;
}

static void set_mtu(struct vaddr *v)
{
	unsigned forced = vaddr_forced_mtu();

	v->mtu = mtu_of(v->dev);
	if (forced && v->mtu > forced + HEADERS)
		v->mtu = forced + HEADERS;
}

static bool loopback4(const uint8_t gid[16])
{
	return wire_gid_is_v4(gid) && gid[12] == 127;
}

static bool serves(const struct vaddr *v, const uint8_t gid[16], uint32_t scope)
{
	return (memcmp(v->gid, gid, 16) == 0 && (!scope || v->scope == scope)) ||
	       (loopback4(gid) && loopback4(v->gid));
}

/* Those that serve `gid`, or all. A machine can have thousands, so only of those the MTU is asked for. */
static int each(const uint8_t *gid, uint32_t scope, int (*fn)(const struct vaddr *a, void *arg),
		void *arg)
{
	struct ifaddrs *all, *i;
	struct vaddr a;
	int rc = 0;

	if (getifaddrs(&all))
		return -errno;
	for (i = all; i && !rc; i = i->ifa_next) {
		if (!take(&a, i) || (gid && !serves(&a, gid, scope)))
			continue;
		set_mtu(&a);
		rc = fn(&a, arg);
	}
	freeifaddrs(all);
	return rc;
}

int vaddr_each(int (*fn)(const struct vaddr *a, void *arg), void *arg)
{
	return each(NULL, 0, fn, arg);
}

struct first {
	struct vaddr *a;
	unsigned n, max;
};

static int add(const struct vaddr *a, void *arg)
{
	struct first *f = arg;

	f->a[f->n++] = *a;
	return f->n == f->max;
}

int vaddr_list(struct vaddr *a, unsigned max)
{
	struct first f = { a, 0, max };
	int rc = each(NULL, 0, add, &f);

	return rc < 0 ? rc : (int)f.n;
}

int vaddr_find(const uint8_t gid[16], uint32_t scope, struct vaddr *out)
{
	struct first f = { out, 0, 1 };
	int rc = each(gid, scope, add, &f);

	if (rc <= 0)
		return rc ? rc : -EADDRNOTAVAIL;
	memcpy(out->gid, gid, 16);
	return 0;
}

bool vaddr_is_local(const uint8_t gid[16])
{
	struct vaddr a;

	return vaddr_find(gid, 0, &a) == 0;
}

int vaddr_toward(const struct sockaddr *to, socklen_t n, struct vaddr *out)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint8_t gid[16];
	uint32_t scope;
	uint16_t port;
	bool any;
	int fd = sys.socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return fd;
	/* Sends nothing: it makes the kernel choose. */
	rc = sys.connect(fd, to, n);
	if (!rc)
		rc = sys.getsockname(fd, (struct sockaddr *)&ss, &len);
	sys.close(fd);
	if (!rc)
		rc = vaddr_from_sockaddr((struct sockaddr *)&ss, len, gid, &scope, &port, &any);
	return rc ? rc : vaddr_find(gid, scope, out);
}
