/* SPDX-License-Identifier: BSD-3-Clause */
#include "proxy_rig.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct proxy_rig rig;

static uint8_t memory[RIG_SEGMENTS << RIG_SEG_LOG2];

int rig_open(const struct platform_ops *platform, unsigned threads, bool ring)
{
	struct proxy_params p = { .threads = threads,
				  .ring = ring,
				  .sentinel_ns = 1000000,
				  .sq_log2 = RIG_SQ_LOG2,
				  .sq = rig.sq,
				  .sq_head = rig.sq_head,
				  .calls = rig.calls,
				  .n_calls = sizeof(rig.calls) / sizeof(rig.calls[0]),
				  .ctl = &rig.ctl,
				  .news = rig.news,
				  .platform = &rig.platform };

	memset(&rig, 0, sizeof(rig));
	rig.platform = *platform;
	if (platform_cpu.open(0, NULL, &rig.dev))
		return -1;
	p.dev = rig.dev;
	return proxy_open(&rig.proxy, &p);
}

int rig_open_sockets(struct sockets_params p)
{
	rig.bus = mmap(NULL, p.max * sizeof(*rig.bus), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (rig.bus == MAP_FAILED || slab_init(&rig.slab, memory, RIG_SEG_LOG2, RIG_SEGMENTS))
		return -1;
	p.bus = rig.bus;
	p.slab = &rig.slab;
	p.proxy = rig.proxy;
	return sockets_init(&rig.all, &p);
}

void rig_close(void)
{
	if (rig.bus) {
		sockets_fini(&rig.all);
		slab_fini(&rig.slab);
		munmap(rig.bus, rig.all.p.max * sizeof(*rig.bus));
	}
	proxy_close(rig.proxy);
	platform_cpu.close(rig.dev);
	sys = sys_real;
}

void rig_put(unsigned q, unsigned op, int fd, const void *data, unsigned n)
{
	uint64_t pos = rig.tail[q]++, tag = GNET_SQ_TAG(pos, RIG_SQ_LOG2), v;
	struct gnet_sqe *e = &rig.sq[(q << RIG_SQ_LOG2) + pos % (1u << RIG_SQ_LOG2)];
	uint8_t cells[GNET_CELLS * GNET_CELL_DATA + 8] = { 0 };
	unsigned i;

	if (n)
		memcpy(cells, data, n);
	for (i = 1; i < GNET_CELLS; i++) {
		memcpy(&v, cells + (size_t)(i - 1) * GNET_CELL_DATA, sizeof(v));
		e->cell[i] = v << 8 | tag;
	}
	e->cell[0] = tag | (uint64_t)op << GNET_SQE0_OP_SHIFT | (uint64_t)fd << GNET_SQE0_FD_SHIFT |
		     (uint64_t)n << GNET_SQE0_LEN_SHIFT;
}

unsigned rig_step(unsigned q, uint64_t ns)
{
	uint64_t next;

	return proxy_step(proxy_thread(rig.proxy, q), rig.now += ns, &next);
}

socklen_t rig_unix_name(struct sockaddr_un *a, const char *what)
{
	int n;

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "gpunet-test-%d-%s", (int)getpid(),
		     what);
	return (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)n;
}

struct sock *rig_socket(unsigned q, int domain, int type)
{
	struct channel *ch;
	struct sock *s;

	assert_int_equal(channel_create(NULL, proxy_thread(rig.proxy, q), domain, type, 0, &ch), 0);
	s = sock_new(&rig.all, q, ch);
	assert_non_null(s);
	sock_publish(s);
	return s;
}

struct sock *rig_listen(unsigned q, const void *a, socklen_t n)
{
	struct sock *s = rig_socket(q, ((const struct sockaddr *)a)->sa_family, SOCK_STREAM);

	assert_int_equal(s->ch->ops->bind(s->ch, a, n), 0);
	assert_int_equal(sock_listen(s, 4096), 0);
	return s;
}

int rig_claim(const struct sock *listener)
{
	struct gnet_sock_bus *b = &rig.bus[listener->slot];
	uint64_t p = b->head, c;

	if (p == listener->accepted)
		return 0;
	c = __atomic_load_n(&b->line.cell[1 + p % GNET_ACCEPT_RING], __ATOMIC_ACQUIRE);
	__atomic_store_n(&b->head, p + 1, __ATOMIC_RELEASE);
	return (int)(c >> 8 & 0x7fffffff);
}

uint64_t rig_told(const struct sock *s)
{
	return __atomic_load_n(&rig.bus[s->slot].line.cell[0], __ATOMIC_ACQUIRE) >>
		       GNET_LINE_TAIL_SHIFT &
	       GNET_LINE_TAIL_MASK;
}

unsigned rig_connections(unsigned wanted)
{
	struct rlimit l;

	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	return l.rlim_cur > 2 * wanted + 200 ? wanted : (unsigned)(l.rlim_cur - 200) / 2;
}

double rig_thread_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void rig_no_notify(struct platform_dev *dev, const void *word)
{
	(void)dev;
	(void)word;
}
