/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events. Whoever changes a word that a kernel may wait on counts the process's event counter up afterwards. A block whose
 * fibers all wait goes to sleep only while the counter is the one from before they looked, so an event in between keeps it
 * awake, whatever it was about.
 *
 * Once it sleeps, an event about one word wakes it only if one of its fibers looked at a word of the same topic (a hash of
 * the 128-byte line) since its last wait: a hundred idle blocks do not wake for each message of one connection. Whoever
 * makes an event reads two counters, of the sleepers on its topic and of those on any, and goes through the list of
 * sleepers only if one of them is not 0.
 *
 * The counter wraps after 2^32 events; a sleeper would have to miss exactly that many between its look and its sleep.
 */
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "platform/cpu/sched.h"

#define WAKE_AT_ONCE 32

static uint32_t events;
static uint32_t all_sleepers; /* that sleep on any event or some */
static uint32_t any_sleepers;
static uint32_t topic_sleepers[CPU_TOPICS];

static uint32_t lock_word; /* 0 free, 1 held, 2 held and waited for */
static struct cpu_sleeper *sleepers;

CPU_SCHED static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/*
 * Not a pthread mutex: TSan would take it for an order between the kernels that make events. Host threads hold it with
 * signals blocked (workers always have them so), since an event may be made by a signal handler: gpunet_abort.
 */
struct guard {
	int host;
	sigset_t signals;
};

CPU_SCHED static void lock(struct guard *g)
{
	uint32_t free_word = 0;
	sigset_t all;

	g->host = !cpu_self()->block;
	if (g->host) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &g->signals);
	}
	if (__atomic_compare_exchange_n(&lock_word, &free_word, 1, 0, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED))
		return;
	while (__atomic_exchange_n(&lock_word, 2, __ATOMIC_ACQUIRE))
		futex(&lock_word, FUTEX_WAIT, 2, NULL);
}

CPU_SCHED static void unlock(const struct guard *g)
{
	if (__atomic_exchange_n(&lock_word, 0, __ATOMIC_RELEASE) == 2)
		futex(&lock_word, FUTEX_WAKE, 1, NULL);
	if (g->host)
		pthread_sigmask(SIG_SETMASK, &g->signals, NULL);
}

/* Under the lock. `by`: 1 or ~0. */
CPU_SCHED static void count_sleeper(const struct cpu_sleeper *s, uint32_t by)
{
	unsigned i;

	if (s->topics)
		__atomic_fetch_add(&all_sleepers, by, __ATOMIC_SEQ_CST);
	if (s->topics == CPU_ANY_TOPIC)
		__atomic_fetch_add(&any_sleepers, by, __ATOMIC_SEQ_CST);
	else
		for (i = 0; i < s->topics; i++)
			__atomic_fetch_add(&topic_sleepers[s->topic[i]], by, __ATOMIC_SEQ_CST);
}

CPU_SCHED static void link_in(struct cpu_sleeper *s)
{
	s->woken = 0;
	s->prev = &sleepers;
	s->next = sleepers;
	if (sleepers)
		sleepers->prev = &s->next;
	sleepers = s;
	count_sleeper(s, 1);
}

CPU_SCHED static void take_out(struct cpu_sleeper *s)
{
	*s->prev = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->prev = NULL;
	count_sleeper(s, ~UINT32_C(0));
}

CPU_SCHED static int is_about(const struct cpu_sleeper *s, unsigned topic)
{
	unsigned i;

	if (s->topics == CPU_ANY_TOPIC || topic == CPU_ANY_TOPIC)
		return s->topics != 0;
	for (i = 0; i < s->topics; i++)
		if (s->topic[i] == topic)
			return 1;
	return 0;
}

CPU_SCHED static void wake(unsigned topic)
{
	uint32_t *word[WAKE_AT_ONCE];
	struct cpu_sleeper *s, *next;
	struct guard g;
	unsigned n = 0;

	lock(&g);
	for (s = sleepers; s; s = next) {
		next = s->next;
		if (!is_about(s, topic))
			continue;
		take_out(s);
		/* From here on it may be gone: a wake of its word is then one of nobody. */
		__atomic_store_n(&s->woken, 1, __ATOMIC_RELEASE);
		if (n < WAKE_AT_ONCE)
			word[n++] = &s->woken;
		else
			futex(&s->woken, FUTEX_WAKE, 1, NULL);
	}
	unlock(&g);
	/* Without the lock, which those that wake might want. */
	while (n)
		futex(word[--n], FUTEX_WAKE, 1, NULL);
}

/* Sequentially consistent, here and in cpu_event_sleep: either the sleeper sees the new count or its mark is seen here. */
CPU_SCHED void gpunet_cpu_event_at(const void *word)
{
	unsigned topic = cpu_topic(word);

	__atomic_fetch_add(&events, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&any_sleepers, __ATOMIC_SEQ_CST) ||
	    __atomic_load_n(&topic_sleepers[topic], __ATOMIC_SEQ_CST))
		wake(topic);
}

CPU_SCHED void gpunet_cpu_event(void)
{
	__atomic_fetch_add(&events, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&all_sleepers, __ATOMIC_SEQ_CST))
		wake(CPU_ANY_TOPIC);
}

CPU_SCHED uint32_t cpu_events(void)
{
	return __atomic_load_n(&events, __ATOMIC_SEQ_CST);
}

/* 0: the time is over. */
CPU_SCHED static int time_left(uint64_t deadline_ns, struct timespec *ts)
{
	uint64_t now = sys.now_ns(), left = now < deadline_ns ? deadline_ns - now : 0;

	ts->tv_sec = (time_t)(left / 1000000000u);
	ts->tv_nsec = (long)(left % 1000000000u);
	return left != 0;
}

CPU_SCHED void cpu_event_sleep(struct cpu_sleeper *s, uint32_t seen, uint64_t deadline_ns)
{
	struct timespec ts, *timeout = NULL;
	struct guard g;

	if (deadline_ns != UINT64_MAX) {
		if (!time_left(deadline_ns, &ts))
			return;
		timeout = &ts;
	}
	lock(&g);
	link_in(s);
	unlock(&g);
	if (cpu_events() == seen)
		futex(&s->woken, FUTEX_WAIT, 0, timeout);
	if (__atomic_load_n(&s->woken, __ATOMIC_ACQUIRE))
		return;
	lock(&g);
	if (s->prev)
		take_out(s);
	unlock(&g);
}
