/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs/rnic/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/pcap.h"
#include "rnic/wire_udp.h"
#include "wire/frame.h"
#include "wire/roce.h"

enum {
	BUDGET = 256, /* packets of one pass, in and out each */
	POLLED =
		32, /* the same out, of one poll: a NAK that has come in makes the rest of them useless */
	FEW = 2, /* a message and an acknowledgement: more may come, but somebody waits for these */
	MAX_QP = 16368,
	HEADERS = 80, /* of IPv6 or IPv4, UDP and RoCE: as rdma_rxe counts */
	PORTS = 65536,
};

/* For so long after a poll the thread leaves the device to those who poll. */
#define BACKOFF_NS UINT64_C(1000000)
/* Who arms looks once more and sleeps: so soon after arming a poll does not take the device back from the thread. */
#define LAST_LOOK_NS UINT64_C(50000)
/* A host that ends waits so long for the answers to its DREQs. */
#define LINGER_NS UINT64_C(100000000)
/* The shortest sleep is a millisecond (sys.epoll_wait), but copies of GPU memory, which wake nobody, end within microseconds. */
#define SOON_NS UINT64_C(2000)

static pthread_mutex_t providers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list providers = { &providers, &providers };
static pthread_mutex_t hosts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list hosts = { &hosts, &hosts };

/* --- progress ----------------------------------------------------------------------------------- */

/* What is to be done about what has come, and in time; the time of the next pass that is needed without news. */
static uint64_t proceed(struct vhost *h, uint64_t now, unsigned budget)
{
	uint64_t next, cm, stat, probe;

	h->put_off = false;
	h->proceeded_at = now;
	probe = vprobe_work(h, now);
	rnic_gsi_poll(h->gsi, now);
	cm = rnic_cm_step(h->cm, now);
	vid_work(h, now);
	next = rnic_step(h->r, now, budget);
	next = cm < next ? cm : next;
	next = probe < next ? probe : next;
	stat = vstat_look(h, now);
	return stat < next ? stat : next;
}

/* `budget`: how many packets go out; what came is taken in any case. */
static uint64_t run(struct vhost *h, uint64_t now, unsigned budget)
{
	rnic_udp_poll(h->wire, now, BUDGET);
	return proceed(h, now, budget);
}

static void kick(struct vhost *h)
{
	uint64_t one = 1;

	if (sys.write(h->kick_fd, &one, sizeof(one)) < 0)
		return; /* the counter is at its limit: it is readable already */
}

/* The thread must look at `next` at the latest. While it backs off, whoever polls keeps the time. */
static void keep_time(struct vhost *h, uint64_t next)
{
	if (h->backoff || next >= h->wake_at)
		return;
	h->wake_at = next;
	kick(h);
}

/* Receives until nothing more comes, or few packets at once: to see that nothing is behind those takes a system call. */
static unsigned receive(struct vhost *h, uint64_t now)
{
	unsigned all = 0;
	int n;

	do {
		n = rnic_udp_poll(h->wire, now, 1);
		all += n > 0 ? (unsigned)n : 0;
	} while (n > FEW && all < BUDGET);
	return all;
}

void vhost_poll(struct vhost *h)
{
	uint64_t now = sys.now_ns();
	bool near = wire_gid_is_v4(h->addr.gid) && h->addr.gid[12] == 127;
	unsigned n;

	if (now - h->handed_at > LAST_LOOK_NS)
		h->polled_at = now;
	if (!near) {
		keep_time(h, run(h, now, POLLED));
		return;
	}
	n = receive(h, now);
	/*
	 * Who polls may have an answer to what came, and posts it next: then the acknowledgement goes with it, and in no case
	 * does he wait until it is sent. If he just polls again, it goes then. Posting does nothing for the CM, which has its turn in time.
	 */
	if (n && n <= FEW && !h->put_off && now - h->proceeded_at < BACKOFF_NS) {
		h->put_off = true;
		keep_time(h, now);
		return;
	}
	keep_time(h, proceed(h, now, POLLED));
}

void vhost_flush(struct vhost *h)
{
	uint64_t now = sys.now_ns(), next = rnic_step(h->r, now, BUDGET), stat = vstat_look(h, now),
		 cm = rnic_cm_next(h->cm), probe = vprobe_work(h, now);

	h->put_off = false;
	next = stat < next ? stat : next;
	/* A request that was just sent is to be repeated. */
	next = cm < next ? cm : next;
	next = probe < next ? probe : next;
	keep_time(h, next > now ? next : now);
}

void vhost_hand_over(struct vhost *h)
{
	h->polled_at = 0;
	h->handed_at = sys.now_ns();
	if (!h->backoff)
		return;
	h->backoff = false;
	h->wake_at = 0;
	kick(h);
}

/* What the thread does next: the descriptor on which it sleeps, and for how long. */
static int turn(struct vhost *h, int64_t *timeout)
{
	uint64_t now = sys.now_ns(), next;

	h->backoff = now - h->polled_at < BACKOFF_NS;
	if (h->backoff) {
		h->wake_at = now + BACKOFF_NS;
		*timeout = (int64_t)BACKOFF_NS;
		return h->kick_ep;
	}
	next = run(h, now, BUDGET);
	h->wake_at = next;
	*timeout = next == UINT64_MAX ? -1 : next > now + SOON_NS ? (int64_t)(next - now) : 0;
	return h->all_ep;
}

/* Something came besides packets on the wire. */
static void aside(struct vhost *h, int fd)
{
	uint64_t count;

	if (fd == h->kick_fd) {
		if (sys.read(fd, &count, sizeof(count)) < 0)
			return; /* somebody else's turn has met it */
	} else if (fd != rnic_udp_fd(h->wire)) {
		vhost_lock(h);
		if (fd == h->port_fd)
			vport_hear(h);
		else if (fd == h->probe.fd)
			vprobe_hear(h, sys.now_ns());
		else
			vshare_take(h, fd, sys.now_ns());
		run(h, sys.now_ns(), BUDGET);
		vhost_unlock(h);
	}
}

static void *host_main(void *arg)
{
	struct vhost *h = arg;
	struct epoll_event ev[16];
	int64_t timeout;
	int ep, n, i;

	for (;;) {
		vhost_lock(h);
		if (h->stop)
			break;
		ep = turn(h, &timeout);
		vhost_unlock(h);
		n = sys.epoll_wait(ep, ev, 16, timeout);
		for (i = 0; i < n; i++)
			aside(h, ev[i].data.fd);
	}
	vhost_unlock(h);
	return NULL;
}

/* --- opening ------------------------------------------------------------------------------------ */

static uint64_t guid_of(const struct vaddr *a)
{
	uint64_t v = 0;

	/* Any will do that no other device has; the local bit is that of a made-up one. */
	if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		memcpy(&v, a->gid + 8, sizeof(v));
	return v | UINT64_C(0x0200000000000000);
}

static void hear_device(void *ctx, const struct rnic_event *ev)
{
	struct vhost *h = ctx;
	struct list *l;

	if (ev->type != RNIC_EVENT_QP_FATAL && ev->type != RNIC_EVENT_QP_REQ_ERR &&
	    ev->type != RNIC_EVENT_QP_ACCESS_ERR)
		return;
	for (l = h->devices.next; l != &h->devices; l = l->next)
		vevents_device(list_entry(l, struct verbs_device, on), VPENDING_ERROR);
}

/*
 * What goes over the wire is written to a file where the environment says so: its name is the variable's value, the process
 * number and the address, since each process has a device for each address. Without the file the device works as well.
 */
static void open_capture(struct vhost *h)
{
	const char *prefix = secure_getenv("GPUNET_RNIC_PCAP");
	bool v4 = wire_gid_is_v4(h->addr.gid);
	char address[INET6_ADDRSTRLEN] = "", path[4096];
	struct rnic_pcap_config cfg = { .path = path };
	struct timespec wall;

	if (!prefix || !*prefix)
		return;
	clock_gettime(CLOCK_REALTIME, &wall);
	cfg.epoch_ns = (uint64_t)wall.tv_sec * 1000000000 + (uint64_t)wall.tv_nsec - sys.now_ns();
	inet_ntop(v4 ? AF_INET : AF_INET6, h->addr.gid + (v4 ? 12 : 0), address, sizeof(address));
	if ((size_t)snprintf(path, sizeof(path), "%s-%d-%s.pcap", prefix, (int)getpid(), address) <
	    sizeof(path))
		rnic_pcap_open(&cfg, &h->pcap);
	h->wire->pcap = h->pcap;
}

static int ask_nobody(void *ctx, const struct rnic_path *path)
{
	const struct vhost *h = ctx;

	return vaddr_nobody(&h->addr, path->dst);
}

static int open_device(struct vhost *h, bool quiet)
{
	struct rnic_udp_config udp = { .scope_id = h->addr.scope,
				       .quiet = quiet,
				       .share = true,
				       .steer = vshare_steer,
				       .steer_ctx = h };
	struct rnic_config dev = { .gids = (const uint8_t(*)[16])h->addr.gid,
				   .ngids = 1,
				   .max_qp = MAX_QP,
				   .qpn_prefix = h->slot,
				   .event = hear_device,
				   .ctx = h };
	struct rnic_cm_config cm = { .guid = guid_of(&h->addr),
				     .max_mtu = h->mtu_code,
				     .event = vid_hear,
				     .nobody = ask_nobody,
				     .ctx = h,
				     .prefixed = true,
				     .prefix = h->slot };
	int rc;

	h->doorbells = sys.map(VEXPORT_DOORBELLS * sizeof(*h->doorbells));
	if (!h->doorbells)
		return -ENOMEM;
	dev.doorbells = h->doorbells;
	dev.ndoorbells = VEXPORT_DOORBELLS;
	memcpy(udp.gid, h->addr.gid, 16);
	rc = rnic_udp_create(&udp, &h->wire);
	if (!rc)
		rc = rnic_open(&h->r, &dev, h->wire);
	if (rc)
		return rc;
	open_capture(h);
	rnic_udp_attach(h->wire, h->r);
	rc = rnic_gsi_open(h->r, &cm, &h->gsi);
	if (!rc)
		h->cm = rnic_gsi_cm(h->gsi);
	return rc;
}

/* GPUNET_RNIC_LOSS: of a million packets that come so many are dropped, to see what loss does. */
static void read_loss(struct vhost *h)
{
	const char *text = getenv("GPUNET_RNIC_LOSS");
	unsigned long v = text ? strtoul(text, NULL, 10) : 0;

	h->loss = (uint32_t)((v < 1000000 ? v : 1000000) * 4294967295u / 1000000);
	h->dice = guid_of(&h->addr);
	if (h->loss)
		log_line(LOG_NOTE, "rnic: GPUNET_RNIC_LOSS drops %lu of a million packets", v);
}

static int watch(int ep, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data = { .fd = fd } };

	return sys.epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

int vhost_watch(struct vhost *h, int fd)
{
	return watch(h->all_ep, fd);
}

static int open_waiting(struct vhost *h)
{
	int rc;

	if ((rc = h->kick_fd = sys.eventfd()) < 0 || (rc = h->all_ep = sys.epoll_create()) < 0 ||
	    (rc = h->kick_ep = sys.epoll_create()) < 0)
		return rc;
	if ((rc = watch(h->kick_ep, h->share_fd)) || (rc = watch(h->all_ep, h->share_fd)) ||
	    (rc = watch(h->kick_ep, h->kick_fd)) || (rc = watch(h->all_ep, h->kick_fd)) ||
	    (rc = watch(h->all_ep, rnic_udp_fd(h->wire))))
		return rc;
	if (h->port_fd >= 0 &&
	    ((rc = watch(h->all_ep, h->port_fd)) || (rc = watch(h->kick_ep, h->port_fd))))
		return rc;
	rc = sys.thread_start(&h->thread, NULL, host_main, h);
	h->running = !rc;
	return rc;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		sys.close(fd);
}

static void show(struct vhost *h)
{
	char text[INET6_ADDRSTRLEN] = "", name[64];
	bool v4 = wire_gid_is_v4(h->addr.gid);

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? h->addr.gid + 12 : h->addr.gid, text, sizeof(text));
	snprintf(name, sizeof(name), "rnic:%s", text);
	vstat_open(h, name);
}

static void host_free(struct vhost *h)
{
	if (h->running) {
		vhost_lock(h);
		h->stop = true;
		kick(h);
		vhost_unlock(h);
		pthread_join(h->thread, NULL);
	}
	vstat_close(h);
	vprobe_close(h);
	vport_close(h);
	close_fd(h->all_ep);
	close_fd(h->kick_ep);
	close_fd(h->kick_fd);
	close_fd(h->share_fd);
	if (h->gsi)
		rnic_gsi_close(h->gsi);
	if (h->r)
		rnic_close(h->r);
	rnic_far_close(&h->far);
	if (h->wire)
		rnic_udp_destroy(h->wire);
	rnic_pcap_close(h->pcap);
	if (h->doorbells)
		sys.unmap(h->doorbells, VEXPORT_DOORBELLS * sizeof(*h->doorbells));
	pthread_mutex_destroy(&h->lock);
	sys.free(h->passed);
	sys.free(h->ports);
	sys.free(h);
}

static int host_open(const struct vaddr *a, bool quiet, struct vhost **out)
{
	struct vhost *h = sys.alloc(sizeof(*h));
	int rc = -ENOMEM;

	if (!h)
		return rc;
	h->refs = 1;
	h->addr = *a;
	h->mtu_code = wire_mtu_code(a->mtu > HEADERS ? a->mtu - HEADERS : 0);
	h->all_ep = h->kick_ep = h->kick_fd = h->share_fd = h->page_fd = -1;
	vprobe_open(h);
	vport_open(h);
	h->mtu_forced = vaddr_forced_mtu() != 0;
	list_init(&h->port_names);
	list_init(&h->waiting);
	list_init(&h->devices);
	pthread_mutex_init(&h->lock, NULL);
	read_loss(h);
	h->ports = sys.alloc(PORTS * sizeof(*h->ports));
	if (h->ports && h->mtu_code)
		rc = vshare_open(h);
	if (h->ports && h->mtu_code && !rc)
		rc = open_device(h, quiet);
	else if (h->ports && !h->mtu_code)
		rc = log_error(-EMSGSIZE, "rnic: the MTU of %s, %u, is too small", a->dev, a->mtu);
	if (!rc) {
		show(h);
		rc = open_waiting(h);
	}
	if (rc) {
		host_free(h);
		return rc;
	}
	*out = h;
	return 0;
}

/* --- fork --------------------------------------------------------------------------------------- */

/*
 * The child of a fork has copies of the devices, but not their threads, and what it said over their sockets it would say in its
 * parent's name; and while it lives, the sockets would keep their ports and names after the parent's end. So its copies come to
 * nothing at once, and what it opens is opened anew.
 */
static void before_fork(void)
{
	struct list *l;

	pthread_mutex_lock(&providers_lock);
	for (l = providers.next; l != &providers; l = l->next)
		pthread_mutex_lock(&list_entry(l, struct verbs, link)->lock);
	pthread_mutex_lock(&hosts_lock);
	for (l = hosts.next; l != &hosts; l = l->next)
		vhost_lock(list_entry(l, struct vhost, link));
	for (l = providers.next; l != &providers; l = l->next)
		pthread_mutex_lock(&list_entry(l, struct verbs, link)->ev_lock);
}

/* But the hosts' own. */
static void unlock_all(void)
{
	struct list *l;

	for (l = providers.next; l != &providers; l = l->next)
		pthread_mutex_unlock(&list_entry(l, struct verbs, link)->ev_lock);
	pthread_mutex_unlock(&hosts_lock);
	for (l = providers.next; l != &providers; l = l->next)
		pthread_mutex_unlock(&list_entry(l, struct verbs, link)->lock);
	pthread_mutex_unlock(&providers_lock);
}

static void in_parent(void)
{
	struct list *l;

	for (l = hosts.next; l != &hosts; l = l->next)
		vhost_unlock(list_entry(l, struct vhost, link));
	unlock_all();
}

static void silence(int fd, int nothing)
{
	if (fd >= 0)
		dup3(nothing, fd, O_CLOEXEC);
}

static void orphan(struct vhost *h, int nothing)
{
	h->running = false;
	vstat_forget(h);
	h->far = (struct rnic_far){ 0 };
	h->wire->pcap = h->pcap = NULL;
	rnic_udp_silence(h->wire, nothing);
	vshare_silence(h, nothing);
	silence(h->all_ep, nothing);
	silence(h->kick_ep, nothing);
	silence(h->kick_fd, nothing);
	silence(h->port_fd, nothing);
	silence(h->probe.fd, nothing);
}

static void in_child(void)
{
	int nothing = sys.eventfd();

	while (!list_empty(&hosts)) {
		struct vhost *h = list_entry(hosts.next, struct vhost, link);

		list_del(&h->link);
		orphan(h, nothing);
		vhost_unlock(h);
	}
	sys.close(nothing);
	unlock_all();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

void vhost_join(struct verbs *v)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&providers_lock);
	list_add_tail(&providers, &v->link);
	pthread_mutex_unlock(&providers_lock);
}

void vhost_leave(struct verbs *v)
{
	pthread_mutex_lock(&providers_lock);
	list_del(&v->link);
	pthread_mutex_unlock(&providers_lock);
}

int vhost_get(const struct vaddr *a, bool quiet, struct vhost **out)
{
	struct list *l;
	int rc = 0;

	pthread_mutex_lock(&hosts_lock);
	for (l = hosts.next; l != &hosts; l = l->next) {
		struct vhost *h = list_entry(l, struct vhost, link);

		if (memcmp(h->addr.gid, a->gid, 16) == 0 && h->addr.scope == a->scope)
			break;
	}
	if (l != &hosts) {
		*out = list_entry(l, struct vhost, link);
		(*out)->refs++;
	} else {
		rc = host_open(a, quiet, out);
		if (!rc)
			list_add_tail(&hosts, &(*out)->link);
	}
	pthread_mutex_unlock(&hosts_lock);
	return rc;
}

/* Peers are told that connections are over; a word that is lost is repeated, for a while. */
static void linger(struct vhost *h)
{
	uint64_t until = sys.now_ns() + LINGER_NS, now;
	struct epoll_event ev[2];
	bool ending;

	do {
		now = sys.now_ns();
		vhost_lock(h);
		h->polled_at = now; /* the thread keeps out of it */
		run(h, now, BUDGET);
		ending = rnic_cm_ending(h->cm);
		vhost_unlock(h);
		if (ending)
			sys.epoll_wait(h->all_ep, ev, 2, 1000000);
	} while (ending && now < until);
}

void vhost_put(struct vhost *h)
{
	pthread_mutex_lock(&hosts_lock);
	if (--h->refs == 0) {
		list_del(&h->link);
		if (h->running)
			linger(h);
		host_free(h);
	}
	pthread_mutex_unlock(&hosts_lock);
}
