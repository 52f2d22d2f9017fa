/* SPDX-License-Identifier: BSD-3-Clause */
/* Proxy threads stepped by hand: no thread runs, the clock is a number, channels are empty shells. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proxy/internal.h"
#include "proxy_rig.h"

#define THREADS 2
#define SOCKETS 16

static struct gnet_sock_bus bus[SOCKETS];

static int rig_up(void **state)
{
	return rig_open(&platform_cpu, THREADS, false);
}

static int no_kick(struct platform_dev *dev, void (*kick)(void *ctx, unsigned q), void *ctx)
{
	(void)dev;
	(void)kick;
	(void)ctx;
	return 0;
}

/* As a GPU: kernels cannot wake threads, nor threads kernels. */
static int rig_up_mute(void **state)
{
	struct platform_ops mute = platform_cpu;

	mute.set_kick = no_kick;
	return rig_open(&mute, THREADS, false);
}

static int rig_down(void **state)
{
	rig_close();
	return 0;
}

static void step(unsigned q)
{
	rig_step(q, 1000);
}

/* ---- hints ---------------------------------------------------------------------------------------- */

/* H2: in order, each with its lap's tag, no more than kernels have made room for. */
static void hints_stop_when_nobody_takes_them(void **state)
{
	struct proxy_thread *t = proxy_thread(rig.proxy, 1);
	uint32_t i, lap;

	for (lap = 0; lap < 3; lap++) {
		for (i = 0; i < GNET_NEWS_RING; i++) {
			assert_true(proxy_may_hint(t));
			proxy_hint(t, 1000 * lap + i);
			assert_int_equal(rig.news[1].cell[i],
					 (uint64_t)(1000 * lap + i) << 8 | (1 + lap));
		}
		assert_false(proxy_may_hint(t));
		assert_int_equal(rig.news[1].cell[0] >> 8, 1000 * lap);
		rig.news[1].head += GNET_NEWS_RING;
	}
	rig.news[1].head += 1000; /* garbage */
	assert_false(proxy_may_hint(t));
	assert_int_equal(rig.news[0].cell[0], 0);
}

static void hint_of(struct stream *s, unsigned side, unsigned wait, bool asked)
{
	uint64_t n = 0, i;

	memset(rig.news, 0, sizeof(rig.news));
	s->bus->waits[wait] = GNET_WAIT(3, 4);
	stream_tell(s, side, &s->bus->txw);
	for (i = 0; i < GNET_NEWS_RING; i++)
		n += rig.news[0].cell[i] >> 8 == 5;
	assert_int_equal(n, asked);
	assert_int_equal(s->bus->waits[wait] != 0, !asked);
	s->bus->waits[wait] = 0;
}

/* H1, H2: one hint for whoever asked about this side, or about the socket; who did not ask gets none. */
static void a_hint_is_given_once_to_who_asks(void **state)
{
	struct stream_set set;
	struct slab slab;
	struct stream s;

	memset(&slab, 0, sizeof(slab));
	stream_set_init(&set, proxy_thread(rig.proxy, 0), &slab, 0);
	stream_init(&s, &set, &bus[5], 5, NULL);
	hint_of(&s, GNET_WAIT_RX, GNET_WAIT_RX, true);
	hint_of(&s, GNET_WAIT_RX, GNET_WAIT_POLL, true);
	hint_of(&s, GNET_WAIT_RX, GNET_WAIT_TX, false);
	hint_of(&s, GNET_WAIT_TX, GNET_WAIT_TX, true);
	hint_of(&s, GNET_WAIT_TX, GNET_WAIT_POLL, true);
	memset(rig.news, 0, sizeof(rig.news));
	stream_tell(&s, GNET_WAIT_RX, &s.bus->txw);
	for (unsigned i = 0; i < GNET_NEWS_RING; i++)
		assert_int_equal(rig.news[0].cell[i], 0);
}

/* ---- events ------------------------------------------------------------------------------------ */

/* ctx: for how many passes at most. */
static unsigned defer(struct proxy_thread *t, uint64_t now, uint64_t *next, void *ctx)
{
	(void)now;
	(void)next;
	proxy_defer_events(t, *(const unsigned *)ctx);
	return 0;
}

static unsigned told;

static void tell(struct proxy_watch *w, uint32_t events)
{
	(void)w;
	(void)events;
	told++;
}

/* Entries in every pass and hooks that look at descriptors themselves: the others have their turn. */
static void events_are_told_however_busy_kernels_are(void **state)
{
	unsigned most = 8;
	const struct proxy_hooks h = { .step = defer, .ctx = &most };
	struct proxy_watch w = { .fn = tell };
	int fd = eventfd(1, EFD_NONBLOCK), i;

	assert_true(fd >= 0);
	proxy_set_hooks(rig.proxy, &h);
	step(0);
	assert_int_equal(proxy_watch(proxy_thread(rig.proxy, 0), fd, &w), 0);
	told = 0;
	for (i = 0; i < 20; i++) {
		rig_put(0, GNET_OP_NOP, 0, NULL, 0);
		step(0);
	}
	assert_int_equal(told, 1);
	close(fd);
}

static unsigned asked;

static int counted_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	asked++;
	return sys_real.epoll_wait(epfd, ev, max, timeout_ns);
}

/* Who finds what it waits for without asking asks once in a thousand passes; where there are events, soon again. */
static void events_that_do_not_come_are_asked_for_ever_more_rarely(void **state)
{
	unsigned most = 1024;
	const struct proxy_hooks h = { .step = defer, .ctx = &most };
	struct proxy_watch w = { .fn = tell };
	int fd = eventfd(0, EFD_NONBLOCK), i;
	uint64_t one = 1;

	assert_true(fd >= 0);
	sys.epoll_wait = counted_wait;
	proxy_set_hooks(rig.proxy, &h);
	assert_int_equal(proxy_watch(proxy_thread(rig.proxy, 0), fd, &w), 0);
	for (i = 0; i < 5000; i++)
		step(0);
	asked = told = 0;
	for (i = 0; i < 100000; i++)
		step(0);
	assert_in_range(asked, 50, 100);
	/* With work in each pass, sooner. */
	asked = 0;
	for (i = 0; i < 1000; i++) {
		rig_put(0, GNET_OP_NOP, 0, NULL, 0);
		step(0);
	}
	assert_in_range(asked, 10, 20);
	for (i = 0; i < 2000 && told < 4; i++) {
		assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
		step(0);
	}
	assert_int_equal(told, 4);
	asked = 0;
	for (i = 0; i < 16; i++)
		step(0);
	assert_true(asked > 0);
	/* However few passes fit into 4 ms. */
	for (i = 0; i < 5000; i++)
		step(0);
	told = 0;
	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
	rig.now += 4000000;
	step(0);
	assert_int_equal(told, 1);
	sys.epoll_wait = sys_real.epoll_wait;
	close(fd);
}

/* A thread's own loop, on a clock that stands still, with a sleep that ends with `n` events at once. */
static struct {
	struct proxy_watch w;
	int n;
	unsigned passes, slept, asked;
} once;

static uint64_t no_time(void)
{
	return 1;
}

static int sleep_and_find(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	int i, n = once.n < max ? once.n : max;

	(void)epfd;
	if (!timeout_ns) {
		once.asked++;
		return 0;
	}
	once.slept++;
	for (i = 0; i < n; i++)
		ev[i] = (struct epoll_event){ .events = EPOLLIN, .data.ptr = &once.w };
	return n;
}

/* The first pass leaves passes without a question behind it, and the thread sleeps; the second, behind the sleep, is the last. */
static unsigned defer_once(struct proxy_thread *t, uint64_t now, uint64_t *next, void *ctx)
{
	(void)now;
	(void)next;
	if (once.passes++)
		proxy_stop(ctx);
	else
		proxy_defer_events(t, 1024);
	return 0;
}

static unsigned asked_behind_a_sleep(int n)
{
	const struct proxy_hooks h = { .step = defer_once, .ctx = rig.proxy };

	sys.epoll_wait = sleep_and_find;
	sys.now_ns = no_time;
	proxy_set_hooks(rig.proxy, &h);
	memset(&once, 0, sizeof(once));
	once.w.fn = tell;
	once.n = n;
	told = 0;
	proxy_thread_main(proxy_thread(rig.proxy, 0));
	sys.epoll_wait = sys_real.epoll_wait;
	sys.now_ns = sys_real.now_ns;
	assert_int_equal(once.passes, 2);
	assert_int_equal(once.slept, 1);
	return once.asked - 1; /* the first pass had */
}

/* There may be more, which must not wait for what was deferred before the sleep. */
static void a_sleep_that_finds_as_much_as_fits_asks_again(void **state)
{
	assert_int_equal(asked_behind_a_sleep(1000), 1);
	assert_true(told > 1 && told < 1000);
}

/* Fewer than fit: those were all. */
static void a_sleep_that_finds_all_does_not_ask_again(void **state)
{
	assert_int_equal(asked_behind_a_sleep(3), 0);
	assert_int_equal(told, 3);
}

/* Who waits awake for something near does not ask for events, but for longer than 4 ms no event waits. */
static void who_stays_awake_asks_after_4_ms(void **state)
{
	struct proxy_watch w = { .fn = tell };
	int fd = eventfd(0, EFD_NONBLOCK), i;
	uint64_t one = 1;

	assert_true(fd >= 0);
	assert_int_equal(proxy_watch(proxy_thread(rig.proxy, 0), fd, &w), 0);
	step(0);
	step(0);
	told = 0;
	proxy_stay_awake(proxy_thread(rig.proxy, 0), rig.now + 10000000);
	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
	for (i = 0; i < 1000; i++)
		step(0);
	assert_int_equal(told, 0);
	rig.now += 4000000;
	step(0);
	assert_int_equal(told, 1);
	/* Over: at once. */
	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
	step(0);
	assert_int_equal(told, 1);
	rig.now += 6000000;
	step(0);
	assert_int_equal(told, 2);
	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
	step(0);
	assert_int_equal(told, 3);
	close(fd);
}

static void a_descriptor_that_is_unwatched_tells_nothing(void **state)
{
	struct proxy_watch w = { .fn = tell };
	int fd = eventfd(1, EFD_NONBLOCK), copy = dup(fd), i;

	assert_true(fd >= 0 && copy >= 0);
	assert_int_equal(proxy_watch(proxy_thread(rig.proxy, 0), fd, &w), 0);
	proxy_unwatch(proxy_thread(rig.proxy, 0), fd);
	close(fd);
	told = 0;
	for (i = 0; i < 20; i++)
		step(0);
	assert_int_equal(told, 0);
	close(copy);
}

/* ---- the queue's emptiness --------------------------------------------------------------------- */

static bool empty_meanwhile;

static void look(struct proxy_thread *t, const struct proxy_entry *e, void *ctx)
{
	(void)t;
	(void)e;
	empty_meanwhile = proxy_queues_empty(ctx);
}

static void an_entry_in_hand_is_not_an_empty_queue(void **state)
{

	proxy_on_op(rig.proxy, GNET_OP_SEND, look, rig.proxy);
	assert_true(proxy_queues_empty(rig.proxy));
	rig_put(1, GNET_OP_SEND, 0, NULL, 0);
	assert_false(proxy_queues_empty(rig.proxy));
	empty_meanwhile = true;
	step(1);
	assert_false(empty_meanwhile);
	assert_true(proxy_queues_empty(rig.proxy));
}

/* ---- orders to close --------------------------------------------------------------------------- */

static unsigned closed;

static void shell_close(struct channel *c, int abort)
{
	(void)c;
	(void)abort;
	closed++;
}

static const struct channel_ops shell_ops = { .name = "shell", .close = shell_close };

/* An order may come after its socket is gone, and find the slot free, unpublished or another's. */
static void an_order_finds_its_slot_used_again(void **state)
{
	static struct sockets all;
	static struct slab slab;
	struct channel ch = { .ops = &shell_ops };
	struct sockets_params p = { .max = SOCKETS, .bus = bus, .slab = &slab, .proxy = rig.proxy };
	struct sock *s, *again = NULL;
	int fd, i;

	assert_int_equal(sockets_init(&all, &p), 0);
	s = sock_new(&all, 1, &ch);
	sock_publish(s);
	fd = sock_fd(s);
	sock_order_close(&all, fd);
	sock_close(s, 0);
	sock_order_close(&all, fd);
	for (i = 0; i < SOCKETS / THREADS && again != s; i++) {
		if (again)
			sock_unnew(again);
		again = sock_new(&all, 1, &ch);
	}
	assert_ptr_equal(again, s);
	sock_publish(s);
	assert_int_not_equal(sock_fd(s), fd);
	closed = 0;
	step(1);
	assert_int_equal(closed, 0);
	assert_ptr_equal(sock_find(proxy_thread(rig.proxy, 1), &all, sock_fd(s)), s);
	/* Of a slot that nobody has used yet, and of one that is free. */
	sock_order_close(&all, GNET_FD(14, 1));
	sock_order_close(&all, GNET_FD(14, 0));
	step(0);
	assert_int_equal(closed, 0);
	/* And the right one is carried out. */
	sock_order_close(&all, sock_fd(s));
	step(1);
	assert_int_equal(closed, 1);
	assert_int_equal(atomic_load(&all.open), 0);
	sockets_fini(&all);
}

/* ---- the last slot ----------------------------------------------------------------------------- */

static struct sockets full;
static struct sock *rival;

/* Somebody takes the last slot between the look at the table and the connection that it was for. */
static int rival_accept(struct channel *c, struct channel **out)
{
	static struct channel other, conn;

	if (rival)
		return -EAGAIN;
	other.ops = conn.ops = c->ops;
	rival = sock_new(&full, 0, &other);
	if (!rival)
		rival = sock_new(&full, 1, &other);
	*out = &conn;
	return 0;
}

static unsigned no_watches; /* how many times yet */
static bool ends;           /* meanwhile, and thread 1 closes its sockets */

static int shell_start(struct channel *c, struct proxy_thread *t)
{
	(void)c;
	(void)t;
	if (ends) {
		sockets_close_all(&full);
		step(1);
		assert_int_equal(closed, 0);
	}
	if (!no_watches)
		return 0;
	no_watches--;
	return -ENOSPC;
}

static int shell_descriptor(struct channel *c)
{
	(void)c;
	return -1;
}

static const struct channel_ops rival_ops = {
	.name = "rival",
	.accept = rival_accept,
	.start = shell_start,
	.descriptor = shell_descriptor,
	.close = shell_close,
};

/* A listener of thread 0 with a connection in its backlog. */
static struct sock *new_listener(void)
{
	static struct slab slab;
	static struct channel l = { .ops = &rival_ops };
	struct sockets_params p = { .max = SOCKETS, .bus = bus, .slab = &slab, .proxy = rig.proxy };
	struct sock *s;

	assert_int_equal(sockets_init(&full, &p), 0);
	rival = NULL;
	s = sock_new(&full, 0, &l);
	s->state = SOCK_LISTENING;
	s->acceptable = true;
	sock_publish(s);
	list_add_tail(&full.t[0].ready, &s->link);
	return s;
}

/* And a table with one free slot; *fill: one of the others. */
static struct sock *crowded_listener(struct sock **fill)
{
	static struct channel ch = { .ops = &shell_ops };
	struct sock *s = new_listener();
	unsigned i;

	for (i = 0; i < SOCKETS - 2; i++) {
		*fill = sock_new(&full, i < SOCKETS / THREADS, &ch);
		assert_non_null(*fill);
	}
	return s;
}

static void a_connection_waits_for_a_slot_that_was_lost(void **state)
{
	struct sock *fill, *s = crowded_listener(&fill);

	closed = 0;
	step(0);
	assert_non_null(rival);
	assert_int_equal(s->accepted, 0);
	assert_int_equal(closed, 0);
	/* Slots are free again, and it is tried again. */
	sock_unnew(rival);
	sock_unnew(fill);
	closed = 0;
	rig.now += 10000000;
	step(0);
	step(0);
	assert_int_equal(s->accepted, 1);
	assert_int_equal(closed, 0);
	sockets_fini(&full);
}

/* The system has no more watches for a while: a connection of another thread is kept, and tried again. */
static void a_connection_waits_to_be_watched(void **state)
{
	struct sock *fill, *s = crowded_listener(&fill);
	unsigned i;

	fill = &full.sock[1];
	assert_int_equal(fill->slot % THREADS, 1);
	sock_unnew(fill);
	no_watches = 3;
	closed = 0;
	step(0);
	assert_int_equal(no_watches, 2);
	assert_true(s->short_of.made);
	for (i = 0; i < 3; i++) {
		assert_int_equal(s->accepted, 0);
		rig.now += 10000000;
		step(0);
		step(0);
	}
	assert_int_equal(no_watches, 0);
	assert_int_equal(s->accepted, 1);
	assert_int_equal(closed, 0);
	sockets_fini(&full);
}

/* A listener that is closed meanwhile takes the connection with it. */
static void a_connection_in_hand_goes_with_its_listener(void **state)
{
	struct sock *fill, *s = crowded_listener(&fill);

	step(0);
	closed = 0;
	sock_close(s, 0);
	assert_int_equal(closed, 2);
	sockets_fini(&full);
}

/* Until it is in the listener's ring, it is the listener's thread's alone. */
static void a_connection_in_hand_is_not_closed_by_its_thread_to_be(void **state)
{
	struct sock *s = new_listener();

	full.next_thread = 1;
	closed = 0;
	ends = true;
	step(0);
	ends = false;
	assert_int_equal(s->accepted, 1);
	/* It goes with its listener, by an order. */
	step(0);
	assert_int_equal(closed, 1);
	step(1);
	assert_int_equal(closed, 2);
	sockets_fini(&full);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(hints_stop_when_nobody_takes_them, rig_up_mute,
						rig_down),
		cmocka_unit_test_setup_teardown(a_hint_is_given_once_to_who_asks, rig_up_mute,
						rig_down),
		cmocka_unit_test_setup_teardown(
			events_that_do_not_come_are_asked_for_ever_more_rarely, rig_up, rig_down),
		cmocka_unit_test_setup_teardown(a_sleep_that_finds_as_much_as_fits_asks_again,
						rig_up, rig_down),
		cmocka_unit_test_setup_teardown(a_sleep_that_finds_all_does_not_ask_again, rig_up,
						rig_down),
		cmocka_unit_test_setup_teardown(who_stays_awake_asks_after_4_ms, rig_up, rig_down),
		cmocka_unit_test_setup_teardown(events_are_told_however_busy_kernels_are, rig_up,
						rig_down),
		cmocka_unit_test_setup_teardown(a_descriptor_that_is_unwatched_tells_nothing,
						rig_up, rig_down),
		cmocka_unit_test_setup_teardown(an_entry_in_hand_is_not_an_empty_queue, rig_up,
						rig_down),
		cmocka_unit_test_setup_teardown(an_order_finds_its_slot_used_again, rig_up,
						rig_down),
		cmocka_unit_test_setup_teardown(a_connection_waits_for_a_slot_that_was_lost, rig_up,
						rig_down),
		cmocka_unit_test_setup_teardown(a_connection_waits_to_be_watched, rig_up, rig_down),
		cmocka_unit_test_setup_teardown(a_connection_in_hand_goes_with_its_listener, rig_up,
						rig_down),
		cmocka_unit_test_setup_teardown(
			a_connection_in_hand_is_not_closed_by_its_thread_to_be, rig_up, rig_down),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
