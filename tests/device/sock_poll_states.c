/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpoll beside poll(2): the same operations on a kernel's socket and on one of the host's, and after each of them the same events,
 * in every state that a stream can come to. What the two ends do becomes known a little later on both sides, so they have to
 * agree at last, not at once.
 */
#include <sys/ioctl.h>

#include "opt.h"

enum { SEQ = 1, DONE, OP, RESULT }; /* words */

#define ALL (POLLIN | POLLOUT | POLLRDHUP)

enum op {
	OP_END,
	OP_NEW,
	OP_LISTEN,
	OP_CONNECT, /* without waiting, to `where` */
	OP_ACCEPT,
	OP_POLL,
	OP_SHUT_RD,
	OP_SHUT_WR,
	OP_SEND,
	OP_RECV,
	OP_ERROR, /* SO_ERROR is read */
	OP_NAME,  /* asks the proxy */
	OP_CLOSE
};

/* ---- the kernel: does what it is told --------------------------------------------------------- */

GNET_DEV int64_t look(gnet_t *net, int fd)
{
	__shared__ struct gnet_pollfd p;
	int rc;

	__syncthreads();
	if (test_k_tid() == 0) {
		p.fd = fd;
		p.events = ALL;
		p.revents = 0;
	}
	__syncthreads();
	rc = gpoll(net, &p, 1, 0);
	return rc < 0 ? rc : p.revents;
}

GNET_DEV int64_t name(gnet_t *net, int fd)
{
	__shared__ struct sockaddr_storage at;
	__shared__ uint32_t len;

	__syncthreads();
	if (test_k_tid() == 0)
		len = sizeof(at);
	__syncthreads();
	return ggetsockname(net, fd, &at, &len);
}

GNET_DEV int64_t perform(struct test_args *a, uint8_t *buf, int op, int *fd, int *other)
{
	gnet_t *net = a->net;
	int c;

	switch (op) {
	case OP_NEW:
		*fd = gsocket(net, a->want->a.sa.sa_family, GNET_SOCK_STREAM | GNET_SOCK_NONBLOCK,
			      0);
		return *fd < 0 ? *fd : 0;
	case OP_LISTEN:
		c = gbind(net, *fd, &a->want->a, a->want->len);
		if (c == 0)
			c = glisten(net, *fd, 5);
		return c ? c : ggetsockname(net, *fd, &a->where->a, &a->where->len);
	case OP_CONNECT:
		return gconnect(net, *fd, &a->where->a, a->where->len);
	case OP_ACCEPT:
		c = gaccept(net, *fd, NULL, NULL);
		if (c < 0)
			return c;
		*other = c;
		return 0;
	case OP_POLL:
		return look(net, *fd);
	case OP_SHUT_RD:
		return gshutdown(net, *fd, GNET_SHUT_RD);
	case OP_SHUT_WR:
		return gshutdown(net, *fd, GNET_SHUT_WR);
	case OP_SEND:
		return gsend(net, *fd, buf, 1, 0);
	case OP_RECV:
		return grecv(net, *fd, buf, 1, 0);
	case OP_NAME:
		return name(net, *fd);
	case OP_ERROR:
		return opt_get(net, *fd, GNET_SOL_SOCKET, GNET_SO_ERROR);
	default:
		if (*other >= 0)
			gclose(net, *other);
		*other = -1;
		return gclose(net, *fd);
	}
}

GNET_DEV int obey(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd = -1, other = -1, op;

	for (uint64_t i = 1;; i++) {
		int64_t rc;

		test_k_wait(&a->word[SEQ], i);
		op = (int)gnet_sys_load_acquire(&a->word[OP]);
		if (op == OP_END)
			return 0;
		rc = perform(a, buf, op, &fd, &other);
		__syncthreads();
		if (test_k_tid() == 0)
			gnet_sys_store(&a->word[RESULT], (uint64_t)rc);
		test_k_set(&a->word[DONE], i);
	}
}

TEST_KERNEL(obey_kernel, obey)

/* ---- the host: tells it, does the same, compares ---------------------------------------------- */

struct pair {
	gpunet_t *g;
	struct test_args a;
	enum test_kind kind;
	uint64_t seq;
	struct test_addr addr[2]; /* to listen at: [0] the kernel's peer, [1] the host's */
	int fd, other;            /* the host's own socket, as the kernel's */
	int peer[2];              /* [0] the kernel's, [1] the host's own */
	struct test_full
		full;  /* closed when no kernel is resident: CUDA waits for it to free memory */
	char done[64]; /* the operations so far */
	unsigned wrong;
};

static int64_t tell(struct pair *p, int op)
{
	test_word_set(&p->a.word[OP], (uint64_t)op);
	test_word_set(&p->a.word[SEQ], ++p->seq);
	test_word_wait(&p->a.word[DONE], p->seq, p->a.report);
	return (int64_t)p->a.word[RESULT];
}

static int native_poll(int fd)
{
	struct pollfd q = { fd, ALL, 0 };

	CHECK(poll(&q, 1, 0) >= 0);
	return q.revents;
}

static const char *name_of(const struct pair *p)
{
	return p->kind == TEST_TCP ? "TCP" : "UNIX";
}

/* Do the kernel and the host come to see the same? After the first time that they do not, others are given less time. */
static int agree(struct pair *p)
{
	uint64_t end = test_now_ms() + (p->wrong ? 300 : 10000 * TEST_SLOW);
	int64_t ours;
	int theirs;

	for (;;) {
		ours = tell(p, OP_POLL);
		theirs = native_poll(p->fd);
		if (ours == theirs)
			return 1;
		if (test_now_ms() > end)
			break;
		test_sleep_ms(1);
	}
	fprintf(stderr, "%s, after \"%s\": gpoll tells 0x%llx, poll 0x%x\n", name_of(p), p->done,
		(unsigned long long)ours, (unsigned)theirs);
	p->wrong++;
	return 0;
}

static void begin(struct pair *p)
{
	p->done[0] = 0;
	p->other = p->peer[0] = p->peer[1] = -1;
	p->fd = socket(p->a.want->a.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK(p->fd >= 0);
	CHECK_EQ(tell(p, OP_NEW), 0);
}

static void end(struct pair *p)
{
	CHECK_EQ(tell(p, OP_CLOSE), 0);
	close(p->fd);
	if (p->other >= 0)
		close(p->other);
	for (int i = 0; i < 2; i++)
		if (p->peer[i] >= 0)
			close(p->peer[i]);
}

static void connected(struct pair *p, int listener)
{
	struct test_addr *to = &p->addr[0];
	int rc;

	begin(p);
	*p->a.where = *to;
	rc = (int)tell(p, OP_CONNECT);
	CHECK(rc == 0 || rc == -EINPROGRESS);
	p->peer[0] = test_accept(listener);
	rc = connect(p->fd, &to->a.sa, to->len);
	CHECK(rc == 0 || errno == EINPROGRESS);
	p->peer[1] = test_accept(listener);
	agree(p);
}

static void reset(struct pair *p)
{
	struct linger now = { 1, 0 };

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(setsockopt(p->peer[i], SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
		close(p->peer[i]);
		p->peer[i] = -1;
	}
}

static void peers_do(struct pair *p, char op)
{
	char byte;

	for (int i = 0; i < 2; i++) {
		if (p->peer[i] < 0)
			continue;
		if (op == 'r' || op == 'w')
			shutdown(p->peer[i], op == 'r' ? SHUT_RD : SHUT_WR);
		else if (op == 's')
			send(p->peer[i], "x", 1, MSG_NOSIGNAL);
		else if (op == 'g')
			recv(p->peer[i], &byte, 1, MSG_DONTWAIT);
		if (op == 'c') {
			close(p->peer[i]);
			p->peer[i] = -1;
		}
	}
}

/*
 * What a call says. Not once we have sent: a later call tells what is wrong with that. Nor of what comes after our SHUT_RD: Linux may
 * still give it.
 */
static void same(struct pair *p, int64_t ours, int64_t theirs)
{
	if (ours == theirs || strchr(p->done, 'S') || (strchr(p->done, 'R') && ours == 0))
		return;
	fprintf(stderr, "%s, at the end of \"%s\": the call gives %lld, Linux's %lld\n", name_of(p),
		p->done, (long long)ours, (long long)theirs);
	p->wrong++;
}

/* What was sent is with the peers, if they read at all: what they do next comes after it. */
static void arrives(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		uint64_t end = test_now_ms() + 10000 * TEST_SLOW;
		int n = 0;

		while (p->peer[i] >= 0 && !strpbrk(p->done, "rW") && !n) {
			CHECK_EQ(ioctl(p->peer[i], FIONREAD, &n), 0);
			CHECK(test_now_ms() < end);
			test_sleep_ms(!n);
		}
	}
}

/* Capitals: the sockets that are looked at. */
static void own_do(struct pair *p, char op)
{
	socklen_t len = sizeof(int);
	ssize_t n;
	int err;
	char byte;

	switch (op) {
	case 'R':
	case 'W':
		shutdown(p->fd, op == 'R' ? SHUT_RD : SHUT_WR);
		tell(p, op == 'R' ? OP_SHUT_RD : OP_SHUT_WR);
		break;
	case 'S':
		send(p->fd, "x", 1, MSG_NOSIGNAL);
		tell(p, OP_SEND);
		arrives(p);
		break;
	case 'G':
		n = recv(p->fd, &byte, 1, MSG_DONTWAIT);
		same(p, tell(p, OP_RECV), n < 0 ? -errno : n);
		break;
	default:
		CHECK_EQ(getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
		same(p, tell(p, OP_ERROR), err);
		break;
	}
}

static void stats(gpunet_t *g, struct gpunet_stats *s)
{
	memset(s, 0, sizeof(*s));
	s->size = sizeof(*s);
	CHECK_EQ(gpunet_get_stats(g, s), 0);
}

/* Nothing happens: the proxy comes to sleep, is not woken again and again, and a command finds it asleep. */
static void comes_to_sleep(struct pair *p)
{
	uint64_t end = test_now_ms() + 10000 * TEST_SLOW;
	struct gpunet_stats before, after, then;

	do {
		stats(p->g, &before);
		test_sleep_ms(10);
		stats(p->g, &after);
		CHECK_EQ(tell(p, OP_NAME), 0);
		stats(p->g, &then);
		if (after.sleeps - before.sleeps <= 1 && then.wakeups > after.wakeups)
			return;
	} while (test_now_ms() < end);
	fprintf(stderr, "%s, after \"%s\": the proxy does not sleep\n", name_of(p), p->done);
	p->wrong++;
}

static int step(struct pair *p, char op)
{
	size_t n = strlen(p->done);

	p->done[n] = op;
	p->done[n + 1] = 0;
	if (op == 'z')
		comes_to_sleep(p);
	else if (op == 'x')
		reset(p);
	else if (op >= 'a')
		peers_do(p, op);
	else
		own_do(p, op);
	return agree(p);
}

/* Peer: r, w shut, s sends, g gets, c closes, x resets. Own, in capitals: R, W, S, G, E reads SO_ERROR. z: all is quiet. */
static void connections(struct pair *p)
{
	static const char *const sequences[] = {
		"sG",    "wG",    "swGG",   "r",     "rS",      "rw",    "wr",   "rwG",    "rsG",
		"R",     "RsG",   "W",      "Ww",    "wW",      "RW",    "WR",   "RWw",    "rR",
		"rW",    "rWw",   "rWs",    "c",     "cW",      "scG",   "scGG", "sc",     "Wc",
		"Rc",    "rc",    "RWc",    "Sg",    "Sgw",     "SgWgc", "x",    "xE",     "xEG",
		"sx",    "sxE",   "Wx",     "rRW",   "wWG",     "Wsw",   "wzx",  "wxE",    "wxzEG",
		"wxG",   "wGxG",  "swx",    "swxGG", "swxEGGz", "wRx",   "wRxG", "Rx",     "RxG",
		"RxE",   "wcz",   "cS",     "wcS",   "wrc",     "wrzc",  "rwGz", "scGEGz", "wSc",
		"Sc",    "ScGE",  "WxE",    "Wwxz",  "wWcz",    "Rwx",   "RwxG", "RwxE",   "RwxGEG",
		"RwxEG", "RwGxG", "sRwxGG",
	};
	struct test_addr *at = &p->addr[0];
	int listener;

	test_addr_make(at, p->kind);
	listener = test_listen(at, 5);
	for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++) {
		connected(p, listener);
		for (const char *op = sequences[i]; *op && step(p, *op); op++)
			continue;
		end(p);
	}
	close(listener);
	test_addr_remove(at);
}

/* Listeners without a connection, with one, and without again. */
static void listeners(struct pair *p)
{
	struct test_addr *at = &p->addr[1];
	socklen_t len = sizeof(at->a);
	int client[2];

	begin(p);
	strcpy(p->done, "listen");
	test_addr_make(at, p->kind);
	CHECK_EQ(bind(p->fd, &at->a.sa, at->len), 0);
	CHECK_EQ(listen(p->fd, 5), 0);
	CHECK_EQ(getsockname(p->fd, &at->a.sa, &len), 0);
	at->len = len;
	p->a.where->len = sizeof(p->a.where->a);
	CHECK_EQ(tell(p, OP_LISTEN), 0);
	agree(p);
	client[0] = test_connect(p->a.where);
	client[1] = test_connect(at);
	agree(p);
	CHECK_EQ(tell(p, OP_ACCEPT), 0);
	p->other = test_accept(p->fd);
	agree(p);
	close(client[0]);
	close(client[1]);
	end(p);
	test_addr_remove(at);
}

/* TCP only: a UNIX socket that does not wait is refused by a full listener, and stays what it was. */
static void connecting(struct pair *p)
{
	test_full_open(&p->full, TEST_TCP);
	begin(p);
	strcpy(p->done, "connect");
	*p->a.where = *p->full.addr;
	CHECK_EQ(tell(p, OP_CONNECT), -EINPROGRESS);
	CHECK(connect(p->fd, &p->full.addr->a.sa, p->full.addr->len) != 0 && errno == EINPROGRESS);
	agree(p);
	end(p);
}

static unsigned run(gpunet_t *g, enum test_kind kind)
{
	struct pair p;

	memset(&p, 0, sizeof(p));
	p.g = g;
	p.kind = kind;
	p.a = test_setup(g, kind, 1, 64);
	TEST_LAUNCH(g, obey_kernel, p.a, 1, 32);
	begin(&p);
	agree(&p);
	end(&p);
	listeners(&p);
	if (kind == TEST_TCP)
		connecting(&p);
	connections(&p);
	test_word_set(&p.a.word[OP], OP_END);
	test_word_set(&p.a.word[SEQ], ++p.seq);
	test_sync(g, p.a.report, 1);
	if (kind == TEST_TCP)
		test_full_close(&p.full);
	test_teardown(&p.a);
	return p.wrong;
}

int main(void)
{
	unsigned wrong;
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(obey_kernel), 0);
	wrong = run(g, TEST_TCP);
	wrong += run(g, TEST_UNIX);
	test_close(g);
	return wrong != 0;
}
