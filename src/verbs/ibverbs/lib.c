/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads the libraries, finds the devices; the provider's table. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "verbs/ibverbs/ib.h"

/* The macros of the headers stand for inline functions that would link to the library. */
#undef ibv_reg_mr
#undef ibv_query_port

struct ib_lib ib_lib;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

enum { NEEDED, OPTIONAL };

struct symbol {
	const char *name;
	size_t at;
	int optional;
};

#define SYM(name_, member_)                                     \
	{                                                       \
		name_, offsetof(struct ib_lib, member_), NEEDED \
	}
#define OPT(name_, member_)                                       \
	{                                                         \
		name_, offsetof(struct ib_lib, member_), OPTIONAL \
	}

static const struct symbol of_ibverbs[] = {
	SYM("ibv_get_device_list", get_device_list),
	SYM("ibv_free_device_list", free_device_list),
	SYM("ibv_fork_init", fork_init),
	OPT("ibv_is_fork_initialized", is_fork_initialized),
	SYM("ibv_query_device", query_device),
	SYM("ibv_query_port", query_port),
	SYM("ibv_alloc_pd", alloc_pd),
	SYM("ibv_dealloc_pd", dealloc_pd),
	SYM("ibv_reg_mr", reg_mr),
	OPT("ibv_reg_mr_iova", reg_mr_iova),
	OPT("ibv_reg_dmabuf_mr", reg_dmabuf_mr),
	SYM("ibv_dereg_mr", dereg_mr),
	SYM("ibv_create_comp_channel", create_comp_channel),
	SYM("ibv_destroy_comp_channel", destroy_comp_channel),
	SYM("ibv_create_cq", create_cq),
	SYM("ibv_destroy_cq", destroy_cq),
	SYM("ibv_get_cq_event", get_cq_event),
	SYM("ibv_ack_cq_events", ack_cq_events),
	SYM("ibv_get_async_event", get_async_event),
	SYM("ibv_ack_async_event", ack_async_event),
	SYM("ibv_modify_qp", modify_qp),
	SYM("ibv_create_qp", create_raw_qp),
	SYM("ibv_destroy_qp", destroy_raw_qp),
	SYM("ibv_query_gid", query_gid),
};

static const struct symbol of_rdmacm[] = {
	SYM("rdma_get_devices", get_devices),
	SYM("rdma_free_devices", free_devices),
	SYM("rdma_create_event_channel", create_event_channel),
	SYM("rdma_destroy_event_channel", destroy_event_channel),
	SYM("rdma_get_cm_event", get_cm_event),
	SYM("rdma_ack_cm_event", ack_cm_event),
	SYM("rdma_create_id", create_id),
	SYM("rdma_destroy_id", destroy_id),
	SYM("rdma_migrate_id", migrate_id),
	SYM("rdma_set_option", set_option),
	SYM("rdma_bind_addr", bind_addr),
	SYM("rdma_listen", listen),
	SYM("rdma_resolve_addr", resolve_addr),
	SYM("rdma_resolve_route", resolve_route),
	SYM("rdma_create_qp", create_qp),
	SYM("rdma_destroy_qp", destroy_qp),
	SYM("rdma_connect", connect),
	SYM("rdma_accept", accept),
	OPT("rdma_init_qp_attr", init_qp_attr),
	SYM("rdma_reject", reject),
	SYM("rdma_disconnect", disconnect),
};

static int load_one(const char *file, const char *package, const struct symbol *s, size_t n,
		    char *why, size_t why_size)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL), *p;
	size_t i;

	if (!lib) {
		snprintf(why, why_size, "%s is not installed (Debian: apt install %s)", file,
			 package);
		return -ENOENT;
	}
	for (i = 0; i < n; i++) {
		p = dlsym(lib, s[i].name);
		if (!p && s[i].optional == NEEDED) {
			snprintf(why, why_size, "%s has no %s: a newer one is needed", file,
				 s[i].name);
			return -ENOENT;
		}
		memcpy((char *)&ib_lib + s[i].at, &p, sizeof(p));
	}
	return 0;
}

/* Once a process; the libraries stay. */
static int load(char *why, size_t why_size)
{
	int rc = 0;

	pthread_mutex_lock(&load_lock);
	if (!loaded) {
		rc = load_one("libibverbs.so.1", "libibverbs1 ibverbs-providers", of_ibverbs,
			      sizeof(of_ibverbs) / sizeof(of_ibverbs[0]), why, why_size);
		if (!rc)
			rc = load_one("librdmacm.so.1", "librdmacm1", of_rdmacm,
				      sizeof(of_rdmacm) / sizeof(of_rdmacm[0]), why, why_size);
		/* Before anything is registered; kernels since 5.12 copy pinned pages for the child themselves. */
		if (!rc && (!ib_lib.is_fork_initialized ||
			    ib_lib.is_fork_initialized() == IBV_FORK_DISABLED))
			(void)ib_lib.fork_init();
		loaded = !rc;
	}
	pthread_mutex_unlock(&load_lock);
	return rc;
}

int ib_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

/* ---- devices ---------------------------------------------------------------------------------------------------------------- */

struct verbs_device *ib_device(struct verbs *v, struct ibv_context *ctx)
{
	struct verbs_device *d = NULL;
	unsigned i;

	if (!ctx)
		return NULL;
	pthread_mutex_lock(&v->lock);
	for (i = 0; i < v->n_devs && !d; i++)
		d = v->dev[i].ctx == ctx ? &v->dev[i] : NULL;
	if (d && !d->pd)
		d->pd = ib_lib.alloc_pd(ctx);
	if (d && !d->pd)
		d = NULL;
	pthread_mutex_unlock(&v->lock);
	return d;
}

int ib_query_port(struct ibv_context *ctx, uint8_t number, struct ibv_port_attr *out)
{
	/* An older library fills an older, shorter structure. */
	memset(out, 0, sizeof(*out));
	return ib_lib.query_port(ctx, number, out);
}

static bool has_dmabuf(struct verbs_device *d)
{
	struct ibv_mr *mr;

	if (!ib_lib.reg_dmabuf_mr || !ib_device(d->v, d->ctx))
		return false;
	errno = 0;
	mr = ib_lib.reg_dmabuf_mr(d->pd, 0, 4096, 0, -1, 0);
	if (mr)
		ib_lib.dereg_mr(mr);
	return mr || errno == EBADF;
}

static bool has_peermem(void)
{
	return !access("/sys/module/nvidia_peermem/version", F_OK) ||
	       !access("/sys/kernel/mm/memory_peers/nv_mem/version", F_OK);
}

static const char *layer_name(const struct ibv_port_attr *port)
{
	return port->link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand";
}

/* They are not used (docs/wire/rsocket.md). */
static const char *windows_of(const struct ibv_device_attr *attr)
{
	if (attr->device_cap_flags &
	    (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B))
		return "memory windows of types 1 and 2";
	return attr->device_cap_flags & IBV_DEVICE_MEM_WINDOW ? "memory windows of type 1"
							      : "no memory windows";
}

static int ib_device_info(struct verbs_device *d, struct verbs_device_info *out)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	int rc = ib_lib.query_device(d->ctx, &attr);

	if (!rc)
		rc = ib_query_port(d->ctx, 1, &port);
	if (rc)
		return -rc;
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "%s", d->ctx->device->name);
	snprintf(out->detail, sizeof(out->detail), "%s, firmware %.40s, MTU %u, %s",
		 layer_name(&port), attr.fw_ver[0] ? attr.fw_ver : "none", 128u << port.active_mtu,
		 windows_of(&attr));
	out->port = port.state == IBV_PORT_ACTIVE ? VERBS_PORT_ACTIVE : VERBS_PORT_DOWN;
	out->mtu = 128u << port.active_mtu;
	out->max_qp = (unsigned)attr.max_qp;
	out->max_cq = (unsigned)attr.max_cq;
	out->max_mr = (unsigned)attr.max_mr;
	out->max_cqe = (unsigned)attr.max_cqe;
	out->max_wr = (unsigned)attr.max_qp_wr;
	out->max_sge = attr.max_sge < IB_SGES ? (unsigned)attr.max_sge : IB_SGES;
	out->flags = (has_dmabuf(d) ? VERBS_DEVICE_DMABUF : 0) |
		     (has_peermem() ? VERBS_DEVICE_PEERMEM : 0);
	return 0;
}

static int ib_devices(struct verbs *v, int (*fn)(const struct verbs_device_info *d, void *arg),
		      void *arg)
{
	struct verbs_device_info info;
	unsigned i;
	int rc = 0;

	for (i = 0; i < v->n_devs && !rc; i++) {
		if (!ib_device_info(&v->dev[i], &info))
			rc = fn(&info, arg);
	}
	return rc;
}

static int ib_device_open(struct verbs *v, const char *name, struct verbs_device **out)
{
	unsigned i;

	for (i = 0; i < v->n_devs; i++) {
		if (strcmp(v->dev[i].ctx->device->name, name) != 0)
			continue;
		*out = ib_device(v, v->dev[i].ctx);
		return *out ? 0 : -ENOMEM;
	}
	return -ENODEV;
}

/* Which RoCE an entry is of, libibverbs tells by a call that is not part of its stable interface; the kernel by a file. */
static bool is_roce_v2(const char *device, unsigned index)
{
	char path[192], text[32] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%u", device,
		 index);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	sys.close(fd);
	return n > 0 && strncmp(text, "RoCE v2", 7) == 0;
}

static int ib_device_gid(struct verbs_device *d, unsigned index, struct verbs_gid *out)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	int rc = ib_query_port(d->ctx, 1, &port);

	if (rc)
		return -rc;
	if (index >= (unsigned)port.gid_tbl_len)
		return -ENOENT;
	memset(out, 0, sizeof(*out));
	/* An empty entry may be an error. */
	if (ib_lib.query_gid(d->ctx, 1, (int)index, &gid))
		return 0;
	memcpy(out->gid, gid.raw, 16);
	out->lid = port.lid;
	out->usable = port.link_layer != IBV_LINK_LAYER_ETHERNET ||
		      is_roce_v2(d->ctx->device->name, index);
	return 0;
}

/* ---- open and close ------------------------------------------------------------------------------------------------------------ */

/* Is there what the libraries need of the kernel? Told apart here, since they say little. */
static int look_for_devices(char *why, size_t why_size)
{
	struct rdma_event_channel *ch;
	struct ibv_device **list;
	int n = 0, err;

	list = ib_lib.get_device_list(&n);
	if (list)
		ib_lib.free_device_list(list);
	if (!list || !n) {
		snprintf(
			why, why_size,
			list ? "the kernel has no RDMA device (Soft-RoCE: rdma link add rxe0 type rxe netdev eth0)"
			     : "the kernel has no RDMA (modprobe ib_uverbs)");
		return -ENODEV;
	}
	ch = ib_lib.create_event_channel();
	err = errno;
	if (ch) {
		ib_lib.destroy_event_channel(ch);
		return 0;
	}
	if (err == EACCES || err == EPERM)
		snprintf(
			why, why_size,
			"no permission for /dev/infiniband/rdma_cm: it needs mode 0666, or this user its group");
	else
		snprintf(why, why_size, "no /dev/infiniband/rdma_cm (modprobe rdma_ucm): %s",
			 strerror(err));
	return -err;
}

static int any_active(const struct verbs_device_info *d, void *arg)
{
	(void)arg;
	return d->port == VERBS_PORT_ACTIVE;
}

static void ib_close(struct verbs *v)
{
	unsigned i;

	for (i = 0; i < v->n_devs; i++) {
		if (v->dev[i].pd)
			ib_lib.dealloc_pd(v->dev[i].pd);
	}
	if (v->ctxs)
		ib_lib.free_devices(v->ctxs);
	pthread_mutex_destroy(&v->lock);
	sys.free(v);
}

static int ib_open(struct verbs **out, char *why, size_t why_size)
{
	struct verbs *v;
	int rc = load(why, why_size), n = 0, i;

	if (!rc)
		rc = look_for_devices(why, why_size);
	if (rc)
		return rc;
	v = sys.alloc(sizeof(*v));
	if (!v)
		return -ENOMEM;
	pthread_mutex_init(&v->lock, NULL);
	/* The contexts that librdmacm's ids use. */
	v->ctxs = ib_lib.get_devices(&n);
	for (i = 0; v->ctxs && i < n && i < IB_DEVICES; i++) {
		v->dev[i].v = v;
		v->dev[i].ctx = v->ctxs[i];
		v->n_devs++;
	}
	if (!v->n_devs) {
		snprintf(
			why, why_size,
			"no RDMA device can be opened (permission for /dev/infiniband/uverbs*, or no ibverbs-providers)");
		rc = -ENODEV;
	} else if (!ib_devices(v, any_active, NULL)) {
		snprintf(why, why_size, "no port of %s is active (ip link set … up)",
			 v->n_devs == 1 ? v->ctxs[0]->device->name : "the RDMA devices");
		rc = -ENETDOWN;
	}
	if (rc) {
		ib_close(v);
		return rc;
	}
	*out = v;
	return 0;
}

static int ib_export_queue(struct verbs_qp *qp, struct verbs_queue_export *out)
{
	return -EOPNOTSUPP;
}

const struct verbs_ops verbs_ibverbs = {
	.name = "ibverbs",
	.open = ib_open,
	.close = ib_close,
	.devices = ib_devices,
	.events_open = ib_events_open,
	.events_close = ib_events_close,
	.events_fd = ib_events_fd,
	.event_next = ib_event_next,
	.id_create = ib_id_create,
	.id_destroy = ib_id_destroy,
	.id_migrate = ib_id_migrate,
	.id_option = ib_id_option,
	.id_device = ib_id_device,
	.id_name = ib_id_name,
	.bind = ib_bind,
	.listen = ib_listen,
	.resolve = ib_resolve,
	.connect = ib_connect,
	.accept = ib_accept,
	.reject = ib_reject,
	.disconnect = ib_disconnect,
	.device_info = ib_device_info,
	.comp_open = ib_comp_open,
	.comp_close = ib_comp_close,
	.comp_fd = ib_comp_fd,
	.comp_drain = ib_comp_drain,
	.cq_create = ib_cq_create,
	.cq_destroy = ib_cq_destroy,
	.poll = ib_poll,
	.arm = ib_arm,
	.qp_create = ib_qp_create,
	.qp_destroy = ib_qp_destroy,
	.post_send = ib_post_send,
	.post_recv = ib_post_recv,
	.reg = ib_reg,
	.dereg = ib_dereg,
	.export_queue = ib_export_queue,
	.device_open = ib_device_open,
	.device_gid = ib_device_gid,
	.peer_qp_create = ib_peer_qp_create,
	.peer_qp_connect = ib_peer_qp_connect,
};
