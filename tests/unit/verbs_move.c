/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of ids of the provider `rnic`: ids that move to another queue move with all that they have not said yet, and with all that they will. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include <cmocka.h>

#include "verbs/rnic/internal.h"
#include "verbs_ends.h"

/* The next time that this lock is left, the listener moves. */
static struct {
	_Atomic(pthread_mutex_t *) lock;
	struct verbs_id *l;
	struct verbs_events *to;
	void *user;
} meanwhile;

int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
	int rc = __real_pthread_mutex_unlock(m);
	pthread_mutex_t *want = m;

	if (atomic_compare_exchange_strong(&meanwhile.lock, &want, NULL))
		ops->id_migrate(meanwhile.l, meanwhile.to, meanwhile.user);
	return rc;
}

static void an_id_moves_with_its_events(void **state)
{
	struct verbs_events *other;
	struct verbs_event ev;
	struct end a, b;
	struct verbs_id *l;
	int user;

	(void)state;
	end_open(&a);
	end_open(&b);
	l = listener(&b, here, 7471);
	begin(&a, here, 7471);
	take(&b);
	joined(&a, &b);
	assert_int_equal(ops->events_open(b.v, 0, &other), 0);
	assert_int_equal(ops->disconnect(a.id), 0);
	next_event(&a, VERBS_EVENT_DISCONNECTED);
	/* It lies in the old queue by now. */
	assert_int_equal(ops->id_migrate(b.id, other, &user), 0);
	no_event(&b);
	assert_int_equal(ops->event_next(other, &ev), 0);
	assert_int_equal(ev.type, VERBS_EVENT_DISCONNECTED);
	assert_ptr_equal(ev.user, &user);
	end_close(&a);
	ops->id_destroy(l);
	ops->qp_destroy(b.qp);
	b.qp = NULL;
	ops->id_destroy(b.id);
	b.id = NULL;
	ops->events_close(other);
	end_close(&b);
}

/* A request that has come, or comes just then, when its listener moves from b: what becomes of it is told where the listener is. */
static void moved(bool elsewhere, bool just_then)
{
	struct pollfd p = { .events = POLLIN };
	struct verbs_events *first, *other;
	struct verbs_conn_param param = say("welcome");
	struct verbs_event ev;
	struct verbs_id *l;
	struct end a, b;
	int user;

	end_open(&a);
	end_open(&b);
	first = b.e;
	l = listener(&b, here, 7471);
	assert_int_equal(ops->events_open(b.v, 0, &other), 0);
	meanwhile.l = l;
	meanwhile.to = elsewhere ? other : first;
	meanwhile.user = &user;
	if (just_then)
		meanwhile.lock = &b.v->ev_lock;
	p.fd = ops->events_fd(just_then ? meanwhile.to : first);
	begin(&a, here, 7471);
	assert_int_equal(poll(&p, 1, 20000), 1);
	if (!just_then)
		assert_int_equal(ops->id_migrate(l, meanwhile.to, &user), 0);
	assert_null(meanwhile.lock);
	if (elsewhere)
		no_event(&b);
	b.e = meanwhile.to;
	ev = next_event(&b, VERBS_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(ev.user, &user);
	b.id = ev.request;
	end_equip(&b);
	assert_int_equal(ops->accept(b.id, &param), 0);
	next_event(&a, VERBS_EVENT_ESTABLISHED);
	ev = next_event(&b, VERBS_EVENT_ESTABLISHED);
	assert_ptr_equal(ev.id, b.id);
	assert_ptr_equal(ev.user, &user);
	end_close(&a);
	ops->id_destroy(l);
	ops->events_close(elsewhere ? first : other);
	end_close(&b);
}

static void a_listener_moves_with_its_requests(void **state)
{
	(void)state;
	moved(true, false);
}

static void a_listener_moves_when_a_request_comes(void **state)
{
	(void)state;
	moved(true, true);
}

static void a_listener_stays_and_its_user_is_another(void **state)
{
	(void)state;
	moved(false, false);
}

/*
 * The peer takes the connection and then thinks better of it, before its answer was looked at: that one stays as it was, also for
 * whoever looks at it just then.
 */
static void an_answer_is_not_overwritten(void **state)
{
	static const char no[WIRE_CM_REJ_PRIV] = "no";
	struct rnic_cm_event rej = { .type = RNIC_CM_REJECTED,
				     .reason = WIRE_REJ_CONSUMER,
				     .priv = (const uint8_t *)no,
				     .priv_len = sizeof(no) };
	struct pollfd p = { .events = POLLIN };
	struct verbs_event ev;
	struct verbs_id *l;
	struct vhost *h;
	struct end a, b;

	(void)state;
	end_open(&a);
	end_open(&b);
	l = listener(&b, here, 7471);
	begin_alone(&a, here, 7471);
	no_event(&a); /* what is readable from now on is the answer */
	take(&b);
	p.fd = ops->events_fd(a.e);
	assert_int_equal(poll(&p, 1, 20000), 1);
	rej.user = a.id;
	h = a.id->dev->host;
	vhost_lock(h);
	vid_hear(h, &rej);
	vhost_unlock(h);
	assert_int_equal(ops->event_next(a.e, &ev), 0);
	assert_memory_equal(ev.param.private_data, "welcome", 8);
	end_close(&a);
	ops->id_destroy(l);
	end_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_id_moves_with_its_events),
		cmocka_unit_test(a_listener_moves_with_its_requests),
		cmocka_unit_test(a_listener_moves_when_a_request_comes),
		cmocka_unit_test(a_listener_stays_and_its_user_is_another),
		cmocka_unit_test(an_answer_is_not_overwritten),
	};

	choose_names();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
