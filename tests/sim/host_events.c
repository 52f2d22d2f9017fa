/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is told of what happens to a socket: poll, epoll, event descriptors. */
#include "host_impl.h"

#include <errno.h>
#include <string.h>

size_t host_space(const struct file *f)
{
	size_t used = f->peer ? f->peer->rx_len + f->peer->flight : 0;

	return used < host_params.buffer ? host_params.buffer - used : 0;
}

static uint32_t poll_sock(struct file *f)
{
	uint32_t e = 0;

	if (f->state == S_LISTEN)
		return f->n_queued ? EPOLLIN : 0;
	if (f->state == S_CONNECTING)
		return 0;
	if (f->err)
		e |= EPOLLERR;
	if (f->dgram)
		return e | EPOLLOUT | (f->first || f->err ? EPOLLIN : 0);
	if (f->state == S_NEW)
		return e | EPOLLOUT | EPOLLHUP;
	if (f->state == S_ENDED || (f->shut_wr && (f->fin || f->shut_rd)) ||
	    (f->fin && f->domain == AF_UNIX && f->peer && f->peer->closed))
		e |= EPOLLHUP;
	if (f->fin || f->shut_rd || f->state == S_ENDED)
		e |= EPOLLIN | EPOLLRDHUP;
	if (f->rx_len)
		e |= EPOLLIN;
	if (f->state == S_ENDED || f->shut_wr || host_space(f))
		e |= EPOLLOUT;
	else
		f->no_space = true;
	return e;
}

uint32_t host_poll(struct file *f)
{
	if (f->kind == K_SOCK)
		return poll_sock(f);
	return (f->count ? EPOLLIN : 0) | EPOLLOUT;
}

void host_edge(struct file *f)
{
	f->ready = true;
	sim_wake(f, ~0u);
	if (f->epoll)
		sim_wake(f->epoll, ~0u);
}

/* ---- epoll and event descriptors ----------------------------------------------------------------------------------------- */

int h_epoll_create(void)
{
	sim_point();
	return host_new(K_EPOLL)->fd;
}

int h_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct file *e = host_file(epfd), *f = host_file(fd);

	sim_point();
	if (!e || !f)
		return -EBADF;
	if (op == EPOLL_CTL_DEL) {
		if (f->epoll != e)
			return -ENOENT;
		f->epoll = NULL;
		return 0;
	}
	if (f->epoll)
		return -EEXIST;
	f->epoll = e;
	f->ptr = ev->data.ptr;
	f->interest = ev->events | EPOLLERR | EPOLLHUP;
	f->ready = false;
	f->drained = true;
	if (host_poll(f) & f->interest)
		host_edge(f);
	return 0;
}

/* Not at any time, or a thread that is told of nothing again and again would never rest. */
static bool spurious(void)
{
	static uint64_t next;

	if (sim_now() < next || !sim_chance(host_params.faults.spurious))
		return false;
	next = sim_now() + sim_random() % 1000000;
	return true;
}

/* One round through the host_files, from a random one on. */
static int collect(struct file *e, struct epoll_event *ev, int max)
{
	int first = (int)sim_below((uint32_t)host_next_fd), i, n = 0;

	for (i = 0; i < host_next_fd && n < max; i++) {
		struct file *f = &host_files[(first + i) % host_next_fd];
		uint32_t mask;

		if (f->epoll != e || f->closed)
			continue;
		if (!f->ready && !spurious())
			continue;
		mask = host_poll(f) & f->interest;
		f->ready = false;
		if (!mask)
			continue;
		sim_note("host: event %x of %d", mask, f->fd);
		ev[n].events = mask;
		ev[n].data.ptr = f->ptr;
		n++;
	}
	return n;
}

static bool epoll_fails;

void host_fail_epoll(void)
{
	int i;

	sim_note("fault: epoll_wait: EBADF");
	epoll_fails = true;
	for (i = 0; i < host_next_fd; i++) {
		if (host_files[i].kind == K_EPOLL)
			sim_wake(&host_files[i], ~0u);
	}
}

int h_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	uint64_t deadline = timeout_ns < 0 ? SIM_NEVER : sim_now() + (uint64_t)timeout_ns;
	struct file *e = host_file(epfd);

	sim_point();
	if (!e)
		return -EBADF;
	for (;;) {
		int n;

		if (epoll_fails) {
			epoll_fails = false;
			return -EBADF;
		}
		n = collect(e, ev, max);

		if (n || !timeout_ns || sim_now() >= deadline)
			return n;
		if (sim_chance(host_params.faults.eintr))
			return -EINTR;
		sim_park(e, deadline, "events (epoll)");
	}
}

int h_eventfd(void)
{
	sim_point();
	return host_new(K_EVENT)->fd;
}

ssize_t h_read(int fd, void *buf, size_t n)
{
	struct file *f = host_file(fd);

	sim_point();
	if (!f || f->kind != K_EVENT || n < sizeof(f->count))
		return -EBADF;
	if (!f->count)
		return -EAGAIN;
	memcpy(buf, &f->count, sizeof(f->count));
	f->count = 0;
	return sizeof(f->count);
}

ssize_t h_write(int fd, const void *buf, size_t n)
{
	struct file *f = host_file(fd);
	uint64_t v;

	sim_point();
	if (!f || f->kind != K_EVENT || n < sizeof(v))
		return -EBADF;
	memcpy(&v, buf, sizeof(v));
	f->count += v;
	host_edge(f);
	return sizeof(v);
}
