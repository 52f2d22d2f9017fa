/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tool says on standard error: one line an event, with object, cause and remedy. */
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include <gpunet/dev/abi/socket.h>

#include "tool.h"

static const char *tool_name = "gpunet";

void tool_set_name(const char *name)
{
	tool_name = name;
}

__attribute__((format(printf, 1, 0))) static void say(const char *fmt, va_list ap)
{
	char line[1024];

	/* One write a line: several processes may share standard error. */
	vsnprintf(line, sizeof(line), fmt, ap);
	fprintf(stderr, "%s: %s\n", tool_name, line);
}

int tool_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
	return TOOL_FAILED;
}

int tool_usage(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
	tool_try_help();
	return TOOL_USAGE;
}

void tool_try_help(void)
{
	fprintf(stderr, "%s: try \"%s --help\"\n", tool_name, tool_name);
}

const char *tool_reason(int rc)
{
	return *gpunet_last_error() ? gpunet_last_error() : strerror(-rc);
}

void tool_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

bool tool_number(const char *option, const char *text, unsigned min, unsigned max, unsigned *out)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long value = digits && digits < 10 ? strtoul(text, NULL, 10) : 0;

	if (text[digits] || digits == 0 || digits >= 10 || value < min || value > max) {
		tool_usage("%s %s: a number from %u to %u is needed", option, text, min, max);
		return false;
	}
	*out = (unsigned)value;
	return true;
}

/* ---- remedies --------------------------------------------------------------------------------- */

static unsigned port_of(const struct tool_addr *addr)
{
	if (addr->addr.ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)&addr->addr)->sin_port);
	if (addr->addr.ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)&addr->addr)->sin6_port);
	return 0;
}

static const char *remedy_in_use(const struct tool_addr *addr)
{
	if (addr->addr.ss_family == AF_UNIX)
		return "another program has it; \"ss -lxp\" shows which";
	/* An RDMA port is no port of the kernel's; what else can be in use, UDP port 4791, the library tells itself. */
	if (addr->protocol == GNET_PROTO_RDMA)
		return "if no line before this one says why, another program has this port: take "
		       "another one, or 0 for any that is free";
	return addr->dgram ? "another program has this port (\"ss -lunp\" shows which); take "
			     "another one, or 0 for any that is free"
			   : "another program has this port (\"ss -ltnp\" shows which); take "
			     "another one, or 0 for any that is free";
}

static const char *remedy_bind(int err, const struct tool_addr *addr)
{
	bool local = addr->addr.ss_family == AF_UNIX;

	switch (err) {
	case EADDRINUSE:
		return remedy_in_use(addr);
	case EEXIST:
		return "what is there is no socket and stays; choose another path";
	case EADDRNOTAVAIL:
		return "no interface of this machine has this address; \"ip address\" shows those "
		       "that are there";
	case EACCES:
	case EPERM:
		if (local)
			return "the directory does not let this user make a socket in it";
		return port_of(addr) < 1024 ? "ports below 1024 need root or CAP_NET_BIND_SERVICE; "
					      "take a higher one"
					    : "this system does not let this user have the port";
	case ENOENT:
	case ENOTDIR:
		return "the directory of the socket does not exist; make it first";
	case EROFS:
		return "the socket would lie in a read-only file system; choose another directory";
	case EINVAL:
		return "the address does not fit the interface";
	default:
		return "";
	}
}

static const char *remedy_connect(int err, const struct tool_addr *addr)
{
	bool local = addr->addr.ss_family == AF_UNIX;

	switch (err) {
	case ECONNREFUSED:
		if (local && !((const struct sockaddr_un *)&addr->addr)->sun_path[0])
			return "nobody has this name in this network namespace; start the server";
		return local ? "nobody listens there, or it is no socket; start the server or correct "
			       "the path"
			     : "nobody listens there; start the server or correct the port";
	case ENOENT:
		return "there is no such socket; start the server or correct the path";
	case ETIMEDOUT:
		return "no answer came; is the address right, does a firewall drop it?";
	case EHOSTUNREACH:
		return "nobody answers at that address; is it right, is that machine up?";
	case ENETUNREACH:
		return "this machine has no route to it; \"ip route\" shows those that it has";
	case EACCES:
	case EPERM:
		return local ? "the socket's permissions do not let this user connect"
			     : "this system does not let this user connect there";
	case EADDRNOTAVAIL:
		return "all local ports for this address are in use; try again later";
	case EINVAL:
		return "the address does not fit the interface";
	default:
		return "";
	}
}

const char *tool_remedy(enum tool_step step, int err, const struct tool_addr *addr)
{
	switch (err) {
	case EMFILE:
		return "the limit of open files is reached (\"ulimit -n\"), or GPUNET_MAX_SOCKETS";
	case ENFILE:
		return "the whole system has no file left: /proc/sys/fs/file-max";
	case ENOMEM:
	case ENOBUFS:
		return "memory is short";
	case EAFNOSUPPORT:
		return addr && addr->addr.ss_family == AF_INET6
			       ? "this machine has no IPv6; use an IPv4 address"
			       : "this machine has no such addresses";
	case EPROTO:
		return "the program and libgpunet are of different versions; rebuild the program";
	case EIO:
		return "the CPU's side of the network failed, see the message before this one";
	case ECONNRESET:
		return "the peer gave up, or was ended, with the connection open";
	case EPIPE:
		return "the peer takes no more bytes";
	default:
		break;
	}
	if (!addr)
		return "";
	if (step == TOOL_STEP_BIND || step == TOOL_STEP_LISTEN)
		return remedy_bind(err, addr);
	if (step == TOOL_STEP_CONNECT)
		return remedy_connect(err, addr);
	return "";
}

int tool_fail_step(enum tool_step step, int err, const struct tool_addr *addr)
{
	static const char *const doing[] = {
		[TOOL_STEP_NONE] = "use",
		[TOOL_STEP_SOCKET] = "make a socket for",
		[TOOL_STEP_BIND] = "bind",
		[TOOL_STEP_LISTEN] = "listen on",
		[TOOL_STEP_ACCEPT] = "accept connections on",
		[TOOL_STEP_CONNECT] = "connect to",
		[TOOL_STEP_LOCAL] = "reach this program's own socket beside",
		[TOOL_STEP_RECEIVE] = "receive from",
		[TOOL_STEP_SEND] = "send to",
	};
	const char *remedy = tool_remedy(step, err, addr);
	char url[URL_TEXT_MAX];

	/* What is missing the library knows, and has said. */
	if (step == TOOL_STEP_SOCKET && err == EPROTONOSUPPORT && addr->protocol == GNET_PROTO_RDMA)
		return TOOL_FAILED;
	url_format_addr(addr, url);
	return tool_fail("cannot %s %s: %s%s%s", doing[step], url, strerror(err),
			 *remedy ? "; " : "", remedy);
}
