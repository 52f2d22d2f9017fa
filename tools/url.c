/* SPDX-License-Identifier: BSD-3-Clause */
#include "url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include <gpunet/dev/abi/socket.h>

#define DIGITS "0123456789"

__attribute__((format(printf, 2, 3))) static int wrong(char *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, URL_WHY_MAX, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* ---- text to URL ------------------------------------------------------------------------------ */

/* A control character in an address would end up in somebody's terminal or log. */
static int has_control(const char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return 1;
	}
	return 0;
}

static int parse_port(struct url *u, const char *text, char *why)
{
	size_t n = strspn(text, DIGITS);
	unsigned long port = n && n <= 5 ? strtoul(text, NULL, 10) : 65536;

	if (text[n] || port > 65535)
		return wrong(why, "\"%.40s\" is no port: a number from 0 to 65535 is", text);
	u->port = (uint16_t)port;
	return 0;
}

/* [address] or [address%zone], then :port */
static int parse_ipv6(struct url *u, const char *text, char *why)
{
	const char *end = strchr(text, ']');
	const char *zone = strchr(text, '%');
	char address[INET6_ADDRSTRLEN];
	struct in6_addr in6;
	size_t n;

	if (!end || end[1] != ':')
		return wrong(why,
			     "\"[\" begins an IPv6 address, which ends with \"]:\" and the port");
	if (zone && zone > end)
		zone = NULL;
	n = (size_t)((zone ? zone : end) - text - 1);
	if (n >= sizeof(address))
		return wrong(why, "what is between [ and ] is too long for an IPv6 address");
	memcpy(address, text + 1, n);
	address[n] = 0;
	if (inet_pton(AF_INET6, address, &in6) != 1)
		return wrong(why, "\"%s\" is no IPv6 address", address);
	if (zone) {
		n = (size_t)(end - zone - 1);
		if (n == 0 || n > URL_ZONE_MAX || memchr(zone + 1, '%', n) ||
		    memchr(zone + 1, '/', n))
			return wrong(
				why,
				"\"%%\" is followed by the name of an interface, 1 to %d bytes",
				URL_ZONE_MAX);
		memcpy(u->zone, zone + 1, n);
	}
	u->family = AF_INET6;
	/* The canonical text, so that equal addresses are equal URLs. */
	inet_ntop(AF_INET6, &in6, u->host, sizeof(u->host));
	return parse_port(u, end + 2, why);
}

static int parse_ip(struct url *u, const char *scheme, const char *text, char *why)
{
	static const char name_chars[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS "-._";
	const char *colon = strrchr(text, ':');
	struct in_addr in;
	size_t n;

	if (text[0] == '[')
		return parse_ipv6(u, text, why);
	if (!colon)
		return wrong(why, "the port is missing: %s://host:port", scheme);
	n = (size_t)(colon - text);
	if (n == 0)
		return wrong(
			why,
			"the host is missing; 0.0.0.0 and [::] are all addresses of this machine");
	if (memchr(text, ':', n))
		return wrong(why, "an IPv6 address stands in brackets: %s://[address]:port",
			     scheme);
	if (memchr(text, '%', n))
		return wrong(
			why,
			"only an IPv6 address in brackets has an interface: %s://[fe80::1%%eth0]:port",
			scheme);
	if (n > URL_HOST_MAX)
		return wrong(why, "the host name is too long: %zu bytes, at most %d are allowed", n,
			     URL_HOST_MAX);
	memcpy(u->host, text, n);
	if (strspn(u->host, name_chars) != n)
		return wrong(why, "a host name has letters, digits, '-', '.' and '_' only");
	u->family = AF_UNSPEC;
	if (strspn(u->host, DIGITS ".") == n) {
		/* Not for the name service, which reads 127.1 and 017 in its own way. */
		if (inet_pton(AF_INET, u->host, &in) != 1)
			return wrong(why,
				     "\"%.40s\" is no IPv4 address: four numbers from 0 to 255 are",
				     u->host);
		u->family = AF_INET;
	}
	return parse_port(u, colon + 1, why);
}

static int parse_unix(struct url *u, const char *text, char *why)
{
	size_t n;

	u->family = AF_UNIX;
	if (text[0] == '@') {
		u->abstract = 1;
		text++;
	} else if (strncmp(text, "///", 3) == 0) {
		text += 2;
	} else if (text[strspn(text, "/")] == 0) {
		return wrong(why, "a UNIX socket is unix:///path or unix:@name");
	} else {
		return wrong(
			why,
			"a UNIX socket's path is absolute, behind two slashes: unix:///path, not unix:%.40s; "
			"unix:@name has none",
			text);
	}
	n = strlen(text);
	if (n == 0)
		return wrong(why, "the name is missing: unix:@name");
	if (n > URL_PATH_MAX)
		return wrong(
			why,
			"the %s is too long: %zu bytes, and a UNIX socket's address has room for %d",
			u->abstract ? "name" : "path", n, URL_PATH_MAX);
	memcpy(u->path, text, n + 1);
	return 0;
}

int url_parse(struct url *u, const char *text, char *why)
{
	static const char *const later[] = { "shm:" };
	struct url got = { 0 };
	size_t i;
	int rc;

	for (i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
		if (strncasecmp(text, later[i], strlen(later[i])) == 0)
			return wrong(why, "%s is not built yet, tcp:, udp:, rdma: and unix: are",
				     later[i]);
	}
	if (has_control(text))
		return wrong(why, "there is a control character in it");
	got.rdma = strncasecmp(text, "rdma://", 7) == 0;
	got.dgram =
		strncasecmp(text, "udp://", 6) == 0 || strncasecmp(text, "unix-dgram:", 11) == 0;
	if (got.rdma)
		rc = parse_ip(&got, "rdma", text + 7, why);
	else if (strncasecmp(text, "tcp://", 6) == 0 || strncasecmp(text, "udp://", 6) == 0)
		rc = parse_ip(&got, got.dgram ? "udp" : "tcp", text + 6, why);
	else if (strncasecmp(text, "unix:", 5) == 0 || got.dgram)
		rc = parse_unix(&got, text + (got.dgram ? 11 : 5), why);
	else
		rc = wrong(why, "an address is tcp://host:port, udp://host:port, rdma://host:port, "
				"unix:///path, unix:@name or the like with unix-dgram:");
	if (rc == 0)
		*u = got;
	return rc;
}

/* ---- URL to text ------------------------------------------------------------------------------ */

int url_format(const struct url *u, char *out)
{
	const char *scheme = u->rdma ? "rdma" : u->dgram ? "udp" : "tcp";

	switch (u->family) {
	case AF_UNIX:
		return snprintf(out, URL_TEXT_MAX, "unix%s:%s%s", u->dgram ? "-dgram" : "",
				u->abstract ? "@" : "//", u->path);
	case AF_INET6:
		return snprintf(out, URL_TEXT_MAX, "%s://[%s%s%s]:%u", scheme, u->host,
				u->zone[0] ? "%" : "", u->zone, u->port);
	default:
		return snprintf(out, URL_TEXT_MAX, "%s://%s:%u", scheme, u->host, u->port);
	}
}

/* ---- socket addresses ------------------------------------------------------------------------- */

static int of_unix(struct url *u, const struct tool_addr *addr)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&addr->addr;
	size_t n = addr->len - offsetof(struct sockaddr_un, sun_path);
	const char *name = un->sun_path;

	if (addr->len <= offsetof(struct sockaddr_un, sun_path) || n > sizeof(un->sun_path))
		return -EINVAL;
	u->abstract = name[0] == 0;
	if (u->abstract) {
		name++;
		n--;
	} else {
		n = strnlen(name, n);
	}
	if (n == 0 || n > URL_PATH_MAX || memchr(name, 0, n))
		return -EINVAL;
	memcpy(u->path, name, n);
	return 0;
}

int url_of_addr(struct url *u, const struct tool_addr *addr)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&addr->addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr->addr;
	struct url got = { 0 };

	got.family = addr->addr.ss_family;
	got.rdma = addr->protocol == GNET_PROTO_RDMA;
	got.dgram = addr->dgram != 0;
	if (got.family == AF_INET && addr->len >= sizeof(*in)) {
		inet_ntop(AF_INET, &in->sin_addr, got.host, sizeof(got.host));
		got.port = ntohs(in->sin_port);
	} else if (got.family == AF_INET6 && addr->len >= sizeof(*in6)) {
		char name[IF_NAMESIZE];

		inet_ntop(AF_INET6, &in6->sin6_addr, got.host, sizeof(got.host));
		got.port = ntohs(in6->sin6_port);
		if (in6->sin6_scope_id && if_indextoname(in6->sin6_scope_id, name))
			memcpy(got.zone, name, sizeof(name));
		else if (in6->sin6_scope_id)
			snprintf(got.zone, sizeof(got.zone), "%u", in6->sin6_scope_id);
	} else if (got.family != AF_UNIX || of_unix(&got, addr) != 0) {
		return -EINVAL;
	}
	*u = got;
	return 0;
}

void url_format_addr(const struct tool_addr *addr, char *out)
{
	struct url u;

	if (url_of_addr(&u, addr) == 0)
		url_format(&u, out);
	else
		snprintf(out, URL_TEXT_MAX, "an unnamed socket");
}

static void list_interfaces(char *out, size_t room)
{
	struct if_nameindex *all = if_nameindex();
	size_t used = 0, i;

	snprintf(out, room, "none");
	for (i = 0; all && all[i].if_index; i++) {
		int n = snprintf(out + used, room - used, "%s%s", i ? ", " : "", all[i].if_name);

		if (n < 0 || (size_t)n >= room - used)
			break;
		used += (size_t)n;
	}
	if (all)
		if_freenameindex(all);
}

/* The interface's number: by name or, as the system prints one that has gone, by number. */
static int resolve_zone(const struct url *u, const struct in6_addr *in6, uint32_t *id, char *why)
{
	char have[200], name[IF_NAMESIZE];
	size_t digits = strspn(u->zone, DIGITS);

	*id = u->zone[0] ? if_nametoindex(u->zone) : 0;
	if (!*id && digits && digits < 10 && !u->zone[digits]) {
		*id = (uint32_t)strtoul(u->zone, NULL, 10);
		if (!if_indextoname(*id, name))
			*id = 0;
	}
	list_interfaces(have, sizeof(have));
	if (u->zone[0] && !*id) {
		wrong(why, "there is no interface \"%s\"; this machine has: %s", u->zone, have);
		return -ENODEV;
	}
	if (!u->zone[0] && IN6_IS_ADDR_LINKLOCAL(in6))
		return wrong(
			why,
			"a link-local address needs its interface: [%s%%NAME]; this machine has: %s",
			u->host, have);
	return 0;
}

static int resolve_unix(const struct url *u, struct tool_addr *out)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&out->addr;
	size_t n = strlen(u->path);

	un->sun_family = AF_UNIX;
	memcpy(un->sun_path + (u->abstract ? 1 : 0), u->path, n);
	/* The zero before an abstract name or after a path counts; more of them would be part of a name. */
	out->len = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
	return 1;
}

static int resolve_ip(const struct url *u, struct tool_addr *out, char *why)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&out->addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out->addr;
	int rc;

	if (u->family == AF_INET) {
		in->sin_family = AF_INET;
		in->sin_port = htons(u->port);
		inet_pton(AF_INET, u->host, &in->sin_addr);
		out->len = sizeof(*in);
		return 1;
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(u->port);
	inet_pton(AF_INET6, u->host, &in6->sin6_addr);
	out->len = sizeof(*in6);
	rc = resolve_zone(u, &in6->sin6_addr, &in6->sin6_scope_id, why);
	return rc == 0 ? 1 : rc;
}

static int resolve_name(const struct url *u, struct tool_addr *list, int room, char *why)
{
	struct addrinfo hints = { 0 }, *all, *ai;
	char port[8];
	int rc, n = 0;

	hints.ai_family = AF_UNSPEC;
	hints.ai_socktype = SOCK_STREAM;
	hints.ai_flags = AI_NUMERICSERV;
	snprintf(port, sizeof(port), "%u", u->port);
	rc = getaddrinfo(u->host, port, &hints, &all);
	if (rc != 0) {
		int err = rc == EAI_SYSTEM && errno ? errno : ENOENT;

		wrong(why,
		      "the name \"%.100s\" has no address: %s; \"getent ahosts %.100s\" asks the same way",
		      u->host, rc == EAI_SYSTEM ? strerror(err) : gai_strerror(rc), u->host);
		return -err;
	}
	for (ai = all; ai && n < room; ai = ai->ai_next) {
		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		memcpy(&list[n].addr, ai->ai_addr, ai->ai_addrlen);
		list[n++].len = ai->ai_addrlen;
	}
	freeaddrinfo(all);
	if (n == 0)
		return wrong(why, "the name \"%.100s\" has neither an IPv4 nor an IPv6 address",
			     u->host);
	return n;
}

int url_resolve(const struct url *u, struct tool_addr *list, int room, char *why)
{
	int i;

	memset(list, 0, (size_t)room * sizeof(*list));
	for (i = 0; i < room; i++) {
		list[i].protocol = u->rdma ? GNET_PROTO_RDMA : 0;
		list[i].dgram = u->dgram != 0;
	}
	switch (u->family) {
	case AF_UNIX:
		return resolve_unix(u, &list[0]);
	case AF_INET:
	case AF_INET6:
		return resolve_ip(u, &list[0], why);
	default:
		return resolve_name(u, list, room, why);
	}
}
