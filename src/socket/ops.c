/* SPDX-License-Identifier: BSD-3-Clause */
/* What the entries of the submission queue do (enum gnet_op). */
#include "socket/socket.h"

#include <errno.h>
#include <string.h>

#include "channel/channel.h"

static void reply(struct proxy_thread *t, const struct proxy_entry *e, int64_t value)
{
	proxy_reply(t, e->call, e->tag, value);
}

static int make_socket(struct proxy_thread *t, struct sockets *all, uint32_t a)
{
	struct channel *ch;
	struct sock *s;
	int domain = (int)(a & 0xff), type = (int)(a >> 8 & 0xff);
	int rc = channel_create(all->p.channels, t, domain, type, (int)(a >> 16 & 0xff), &ch);

	if (rc)
		return rc;
	s = sock_new(all, proxy_index(t), ch);
	if (!s)
		rc = -EMFILE;
	else if (type == SOCK_DGRAM)
		rc = sock_open_datagrams(s, domain);
	if (rc) {
		if (s)
			sock_unnew(s);
		ch->ops->close(ch, 0);
		return rc;
	}
	stat_tell(s, false);
	sock_publish(s);
	return sock_fd(s);
}

static void op_socket(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	reply(t, e, make_socket(t, ctx, e->a));
}

static void op_send(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	struct sock *s = sock_find(t, ctx, e->fd);

	if (s)
		stream_send(&s->st, e->data, e->len);
}

static void op_tx(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	struct sock *s = sock_find(t, ctx, e->fd);

	if (s)
		stream_tail(&s->st, e->pos);
}

static void op_tx_detach(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	struct sock *s = sock_find(t, ctx, e->fd);

	if (s)
		stream_detach_tx(&s->st);
}

/* Copies a command's address out of memory that a kernel may go on writing: its length, or -EINVAL. */
static int take_addr(struct proxy_thread *t, const struct proxy_entry *e,
		     struct sockaddr_storage *a)
{
	const uint8_t *arg = proxy_arg(t, e->call);

	if (!arg || e->a < sizeof(a->ss_family) || e->a > sizeof(*a))
		return -EINVAL;
	memset(a, 0, sizeof(*a));
	memcpy(a, arg, e->a);
	return (int)e->a;
}

static int bind_to(struct proxy_thread *t, const struct proxy_entry *e, struct sock *s)
{
	struct sockaddr_storage a;
	int n = take_addr(t, e, &a), rc;

	rc = n < 0 ? n : s->ch->ops->bind(s->ch, (struct sockaddr *)&a, (socklen_t)n);
	if (!rc)
		stat_tell(s, true);
	return rc;
}

static int connect_to(struct proxy_thread *t, const struct proxy_entry *e, struct sock *s)
{
	struct sockaddr_storage a;
	int n = take_addr(t, e, &a);

	if (n < 0)
		return n;
	if (s->state == SOCK_DATAGRAMS) {
		n = s->ch->ops->connect(s->ch, (struct sockaddr *)&a, (socklen_t)n);
		stat_tell(s, true);
		return n;
	}
	if (s->state == SOCK_CONNECTING)
		return -EALREADY;
	if (s->state != SOCK_NEW)
		return -EISCONN;
	if (a.ss_family == AF_UNSPEC)
		return -EAFNOSUPPORT; /* for the system a word to part from a peer, and so a success */
	return sock_connect(s, (struct sockaddr *)&a, (socklen_t)n, e->b & 1);
}

static int64_t name_of(struct proxy_thread *t, const struct proxy_entry *e, struct sock *s)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	uint8_t *arg = proxy_arg(t, e->call);
	int rc =
		s->ch->ops->name_of(s->ch, e->op == GNET_OP_GETPEERNAME, (struct sockaddr *)&a, &n);

	if (rc || !arg)
		return rc ? rc : -EINVAL;
	memcpy(arg, &a, n < sizeof(a) ? n : sizeof(a));
	return n;
}

static int64_t option(struct proxy_thread *t, const struct proxy_entry *e, struct sock *s)
{
	uint8_t *arg = proxy_arg(t, e->call), v[GNET_CALL_ARG];
	int level = GNET_OPT_LEVEL(e->b), name = GNET_OPT_NAME(e->b);
	uint32_t n = GNET_OPT_LEN(e->b);
	int64_t rc;

	if (!arg || n > sizeof(v))
		return -EINVAL;
	/* A copy, out of memory that a kernel may go on writing. */
	memcpy(v, arg, n);
	if (e->op == GNET_OP_SETOPT)
		return sock_set_option(s, level, name, v, n);
	rc = sock_get_option(s, level, name, v, n);
	if (rc > 0)
		memcpy(arg, v, (size_t)rc < n ? (size_t)rc : n);
	return rc;
}

static int64_t run_command(struct proxy_thread *t, const struct proxy_entry *e, struct sock *s)
{
	switch (e->op) {
	case GNET_OP_BIND:
		return bind_to(t, e, s);
	case GNET_OP_CONNECT:
		return connect_to(t, e, s);
	case GNET_OP_LISTEN:
		return sock_listen(s, e->b > INT32_MAX ? INT32_MAX : (int)e->b);
	case GNET_OP_SHUTDOWN:
		return sock_carries(s) ? stream_shutdown(&s->st, (int)e->a) : -ENOTCONN;
	case GNET_OP_TX_ATTACH:
		return sock_carries(s) ? stream_attach_tx(&s->st) : -ENOTCONN;
	case GNET_OP_SETOPT:
	case GNET_OP_GETOPT:
		return option(t, e, s);
	default:
		return name_of(t, e, s);
	}
}

static void op_command(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	struct sock *s = sock_find(t, ctx, e->fd);

	reply(t, e, s ? run_command(t, e, s) : -EBADF);
}

static void op_close(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	struct sock *s = sock_find(t, ctx, e->fd);

	reply(t, e, s ? sock_close_call(s, e->b) : sock_close_again(t, ctx, e->fd));
}

static void op_gave_up(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	(void)t;
	(void)e;
	reports_collect(((struct sockets *)ctx)->p.reports);
}

static void op_getaddrinfo(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	resolver_ask(((struct sockets *)ctx)->resolver, t, e);
}

void sock_register_ops(struct sockets *all)
{
	static const unsigned commands[] = { GNET_OP_BIND,       GNET_OP_CONNECT,
					     GNET_OP_LISTEN,     GNET_OP_SHUTDOWN,
					     GNET_OP_TX_ATTACH,  GNET_OP_SETOPT,
					     GNET_OP_GETOPT,     GNET_OP_GETSOCKNAME,
					     GNET_OP_GETPEERNAME };
	struct proxy *p = all->p.proxy;
	unsigned i;

	proxy_on_op(p, GNET_OP_SOCKET, op_socket, all);
	proxy_on_op(p, GNET_OP_SEND, op_send, all);
	proxy_on_op(p, GNET_OP_TX, op_tx, all);
	proxy_on_op(p, GNET_OP_TX_DETACH, op_tx_detach, all);
	proxy_on_op(p, GNET_OP_GAVE_UP, op_gave_up, all);
	proxy_on_op(p, GNET_OP_CLOSE, op_close, all);
	proxy_on_op(p, GNET_OP_GETADDRINFO, op_getaddrinfo, all);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		proxy_on_op(p, commands[i], op_command, all);
}
