/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs/rnic/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "wire/frame.h"
#include "wire/roce.h"

enum { HEADERS = 80, MAX_WR = 32768, MAX_CQE = 1 << 22, MAX_MR = 65536, MAX_QP = 16368 };

static int rnic_prov_open(struct verbs **out, char *why, size_t why_size)
{
	struct vaddr a[1];
	struct verbs *v;
	int n = vaddr_list(a, 1);

	if (n <= 0) {
		snprintf(why, why_size, "no network interface is up");
		return n < 0 ? n : -ENODEV;
	}
	v = sys.alloc(sizeof(*v));
	if (!v)
		return -ENOMEM;
	pthread_mutex_init(&v->lock, NULL);
	pthread_mutex_init(&v->ev_lock, NULL);
	list_init(&v->devices);
	vhost_join(v);
	*out = v;
	return 0;
}

static void rnic_prov_close(struct verbs *v)
{
	vhost_leave(v);
	while (!list_empty(&v->devices)) {
		struct verbs_device *d = list_entry(v->devices.next, struct verbs_device, link);

		list_del(&d->link);
		vhost_lock(d->host);
		list_del(&d->on);
		rnic_pd_destroy(d->pd);
		vhost_unlock(d->host);
		vhost_put(d->host);
		sys.free(d);
	}
	pthread_mutex_destroy(&v->ev_lock);
	pthread_mutex_destroy(&v->lock);
	sys.free(v);
}

/* --- devices ------------------------------------------------------------------------------------ */

static struct verbs_device *device_find(struct verbs *v, const struct vaddr *a)
{
	struct list *l;

	for (l = v->devices.next; l != &v->devices; l = l->next) {
		struct verbs_device *d = list_entry(l, struct verbs_device, link);

		if (memcmp(d->host->addr.gid, a->gid, 16) == 0 && d->host->addr.scope == a->scope)
			return d;
	}
	return NULL;
}

static int device_new(struct verbs *v, const struct vaddr *a, bool quiet, struct verbs_device **out)
{
	struct verbs_device *d = sys.alloc(sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	d->v = v;
	list_init(&d->async);
	rc = vhost_get(a, quiet, &d->host);
	if (rc) {
		sys.free(d);
		return rc;
	}
	vhost_lock(d->host);
	rc = rnic_pd_create(d->host->r, &d->pd);
	if (!rc)
		list_add_tail(&d->host->devices, &d->on);
	vhost_unlock(d->host);
	if (rc) {
		vhost_put(d->host);
		sys.free(d);
		return rc;
	}
	list_add_tail(&v->devices, &d->link);
	*out = d;
	return 0;
}

int vdevice_get(struct verbs *v, const struct vaddr *a, bool quiet, struct verbs_device **out)
{
	struct verbs_device *d;
	int rc = 0;

	pthread_mutex_lock(&v->lock);
	d = device_find(v, a);
	if (d)
		*out = d;
	else
		rc = device_new(v, a, quiet, out);
	pthread_mutex_unlock(&v->lock);
	return rc;
}

static void describe(const struct vaddr *a, struct verbs_device_info *d)
{
	char text[INET6_ADDRSTRLEN] = "";
	bool v4 = wire_gid_is_v4(a->gid);
	unsigned room = a->mtu > HEADERS ? a->mtu - HEADERS : 0;

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? a->gid + 12 : a->gid, text, sizeof(text));
	*d = (struct verbs_device_info){ .port = a->up ? VERBS_PORT_ACTIVE : VERBS_PORT_DOWN,
					 .mtu = wire_mtu_bytes(wire_mtu_code(room)),
					 .max_qp = MAX_QP,
					 .max_cq = MAX_QP * 2,
					 .max_mr = MAX_MR,
					 .max_cqe = MAX_CQE,
					 .max_wr = MAX_WR,
					 .max_sge = 32,
					 .flags = VERBS_DEVICE_SOFTWARE | VERBS_DEVICE_EXPORT };
	snprintf(d->name, sizeof(d->name), "rnic:%s", text);
	snprintf(d->detail, sizeof(d->detail),
		 "software RNIC, RoCEv2 over UDP, interface %s, MTU %u", a->dev, a->mtu);
}

struct listing {
	int (*fn)(const struct verbs_device_info *d, void *arg);
	void *arg;
};

static int list_one(const struct vaddr *a, void *arg)
{
	const struct listing *l = arg;
	struct verbs_device_info d;

	describe(a, &d);
	return l->fn(&d, l->arg);
}

static int rnic_prov_devices(struct verbs *v,
			     int (*fn)(const struct verbs_device_info *d, void *arg), void *arg)
{
	struct listing l = { fn, arg };

	return vaddr_each(list_one, &l);
}

/* Its names are addresses: "rnic:ADDRESS". */
static int rnic_prov_device_open(struct verbs *v, const char *name, struct verbs_device **out)
{
	const char *text = strncmp(name, "rnic:", 5) == 0 ? name + 5 : name;
	uint8_t gid[16] = { 0 };
	struct in_addr v4;
	struct vaddr a;
	int rc;

	if (inet_pton(AF_INET, text, &v4) == 1)
		wire_gid_from_v4(gid, (const uint8_t *)&v4);
	else if (inet_pton(AF_INET6, text, gid) != 1)
		return -ENODEV;
	rc = vaddr_find(gid, 0, &a);
	if (rc)
		return rc == -EADDRNOTAVAIL ? -ENODEV : rc;
	return vdevice_get(v, &a, false, out);
}

static int rnic_prov_device_gid(struct verbs_device *d, unsigned index, struct verbs_gid *out)
{
	if (index)
		return -ENOENT;
	*out = (struct verbs_gid){ .usable = true };
	memcpy(out->gid, d->host->addr.gid, 16);
	return 0;
}

static int rnic_prov_device_info(struct verbs_device *d, struct verbs_device_info *out)
{
	struct vaddr now;

	/* The interface may have lost its address or its cable meanwhile. */
	if (vaddr_find(d->host->addr.gid, d->host->addr.scope, &now)) {
		now = d->host->addr;
		now.up = false;
	}
	describe(&now, out);
	return 0;
}

/* --- memory ------------------------------------------------------------------------------------- */

struct vmr {
	struct verbs_mr mr;
	struct vhost *host;
	struct rnic_mr *rnic;
};

/* The same where a sandbox forbids the other: a pipe's write end takes the byte, or finds that it cannot. */
static bool readable_by_pipe(const uint8_t *p)
{
	int fd[2];
	bool yes;

	if (pipe2(fd, O_CLOEXEC | O_NONBLOCK))
		return true;
	yes = write(fd[1], p, 1) == 1 || errno != EFAULT;
	close(fd[0]);
	close(fd[1]);
	return yes;
}

/* Whether the CPU can load from there; GPU memory that it cannot map is reached by copies. */
static bool readable(const uint8_t *p)
{
	uint8_t byte;
	struct iovec to = { &byte, 1 }, from = { (void *)(uintptr_t)p, 1 };

	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1)
		return true;
	return errno != EFAULT && readable_by_pipe(p);
}

/*
 * Whether the CPU can store there. The kernel adds 0 to the word, which changes nothing, whoever else uses it; a store of ours would
 * be the fault that this is to find before a peer's packet does.
 */
static bool writable(const uint8_t *p)
{
	uint32_t *word = (uint32_t *)((uintptr_t)p & ~(uintptr_t)3), mine = 0;

	return syscall(SYS_futex, &mine, FUTEX_WAKE_OP_PRIVATE, 0, NULL, word,
		       FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_LT, 0)) >= 0 ||
	       errno != EFAULT;
}

/* Memory of the CPU. Its ends are looked at; what lies between is the caller's word. */
static int reg_near(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
		    struct rnic_mr **out)
{
	const uint8_t *p = m->addr;
	int rc;

	if (access & VERBS_ACCESS_LOCAL_WRITE && !(writable(p) && writable(p + m->length - 1)))
		return log_error(
			-EFAULT,
			"rnic: %llu bytes at %p cannot be written: register what is read only "
			"without the right to write",
			(unsigned long long)m->length, m->addr);
	vhost_lock(d->host);
	rc = rnic_mr_create(d->pd, m->addr, m->length, m->iova, access, out);
	vhost_unlock(d->host);
	return rc;
}

static int rnic_prov_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
			 struct verbs_mr **out)
{
	const uint8_t *p = m->addr;
	struct vmr *mr;
	int rc;

	if (m->fd >= 0)
		return -EOPNOTSUPP;
	if (!m->length || (uintptr_t)p + m->length < (uintptr_t)p)
		return -EINVAL;
	mr = sys.alloc(sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->host = d->host;
	if (readable(p) && readable(p + m->length - 1))
		rc = reg_near(d, m, access, &mr->rnic);
	else
		rc = vfar_reg(d, m, access, &mr->rnic);
	if (rc) {
		sys.free(mr);
		return rc;
	}
	mr->mr = (struct verbs_mr){ rnic_mr_lkey(mr->rnic), rnic_mr_rkey(mr->rnic), NULL };
	*out = &mr->mr;
	return 0;
}

static void rnic_prov_dereg(struct verbs_mr *mr)
{
	struct vmr *m = (struct vmr *)mr;

	vhost_lock(m->host);
	rnic_mr_destroy(m->rnic);
	vhost_unlock(m->host);
	sys.free(m);
}

const struct verbs_ops verbs_rnic = {
	.name = "rnic",
	.open = rnic_prov_open,
	.close = rnic_prov_close,
	.devices = rnic_prov_devices,
	.events_open = vevents_open,
	.events_close = vevents_close,
	.events_fd = vevents_fd,
	.event_next = vevents_next,
	.id_create = vid_create,
	.id_destroy = vid_destroy,
	.id_migrate = vid_migrate,
	.id_option = vid_option,
	.id_device = vid_device,
	.id_name = vid_name,
	.bind = vid_bind,
	.listen = vid_listen,
	.resolve = vid_resolve,
	.connect = vid_connect,
	.accept = vid_accept,
	.reject = vid_reject,
	.disconnect = vid_disconnect,
	.device_info = rnic_prov_device_info,
	.comp_open = vcomp_open,
	.comp_close = vcomp_close,
	.comp_fd = vcomp_fd,
	.comp_drain = vcomp_drain,
	.cq_create = vcq_create,
	.cq_destroy = vcq_destroy,
	.poll = vcq_poll,
	.arm = vcq_arm,
	.qp_create = vqp_create,
	.qp_destroy = vqp_destroy,
	.post_send = vqp_post_send,
	.post_recv = vqp_post_recv,
	.reg = rnic_prov_reg,
	.dereg = rnic_prov_dereg,
	.export_queue = vexport_get,
	.device_open = rnic_prov_device_open,
	.device_gid = rnic_prov_device_gid,
	.peer_qp_create = vqp_create_alone,
	.peer_qp_connect = vqp_connect_alone,
};
