/* SPDX-License-Identifier: BSD-3-Clause */
/* Options: given, or from the environment, or the default; docs/options.md is the same table. */
#include "socket/net.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum kind { UINT, INT, SIZE, U64 };

struct option {
	const char *name, *env;
	enum kind kind;
	size_t offset;
	int64_t least, most, def;
	bool power_of_two;
};

#define OPT(name_, env_, kind_, least_, most_, def_, pow2_)                                       \
	{                                                                                         \
#name_, env_, kind_, offsetof(struct gpunet_options, name_), least_, most_, def_, \
			pow2_                                                                     \
	}

/* 0 stands for "default" wherever it is not a value of its own. */
static const struct option table[] = {
	OPT(proxy_threads, "GPUNET_PROXY_THREADS", UINT, 1, 64, 1, false),
	OPT(spin_us, "GPUNET_SPIN_US", INT, -1, 1000000000, 0, false),
	OPT(max_sockets, "GPUNET_MAX_SOCKETS", UINT, 16, GNET_SLOT_MAX - 1, 16384, false),
	OPT(slab_bytes, "GPUNET_SLAB_BYTES", SIZE, 64 << 10, INT64_C(64) << 30, 256 << 20, false),
	OPT(segment_bytes, "GPUNET_SEGMENT_BYTES", SIZE, 16 << 10, INT64_C(1) << GNET_SEG_LOG2_MAX,
	    1 << 20, true),
	OPT(queue_entries, "GPUNET_QUEUE_ENTRIES", UINT, 64, 65536, 1024, true),
	OPT(calls, "GPUNET_CALLS", UINT, 64, 65536, 256, false),
	OPT(linger_ms, "GPUNET_LINGER_MS", UINT, 1, 86400000, 10000, false),
	OPT(cpu_blocks, "GPUNET_CPU_BLOCKS", UINT, 1, 4096, 64, false),
	OPT(cpu_seed, "GPUNET_CPU_SEED", U64, 0, INT64_MAX, 0, false),
	OPT(hops, "GPUNET_HOPS", UINT, 0, 1, 0, false),
	OPT(sentinel_us, "GPUNET_SENTINEL_US", UINT, 10, 1000000, 1000, false),
};

static int64_t get(const struct gpunet_options *o, const struct option *t)
{
	const char *p = (const char *)o + t->offset;
	unsigned u;
	int i;
	size_t z;
	uint64_t q;

	switch (t->kind) {
	case UINT:
		memcpy(&u, p, sizeof(u));
		return u;
	case INT:
		memcpy(&i, p, sizeof(i));
		return i;
	case SIZE:
		memcpy(&z, p, sizeof(z));
		return z > INT64_MAX ? INT64_MAX : (int64_t)z;
	default:
		memcpy(&q, p, sizeof(q));
		return q > INT64_MAX ? INT64_MAX : (int64_t)q;
	}
}

static void set(struct gpunet_options *o, const struct option *t, int64_t v)
{
	char *p = (char *)o + t->offset;
	unsigned u = (unsigned)v;
	int i = (int)v;
	size_t z = (size_t)v;
	uint64_t q = (uint64_t)v;

	switch (t->kind) {
	case UINT:
		memcpy(p, &u, sizeof(u));
		break;
	case INT:
		memcpy(p, &i, sizeof(i));
		break;
	case SIZE:
		memcpy(p, &z, sizeof(z));
		break;
	default:
		memcpy(p, &q, sizeof(q));
	}
}

/* A whole number, with K, M or G for powers of 1,024. */
static int parse(const char *s, int64_t *out)
{
	char *end;
	long long v;
	int shift = 0;

	errno = 0;
	v = strtoll(s, &end, 0);
	if (errno || end == s)
		return -EINVAL;
	if (*end == 'K' || *end == 'k')
		shift = 10;
	else if (*end == 'M' || *end == 'm')
		shift = 20;
	else if (*end == 'G' || *end == 'g')
		shift = 30;
	if (end[shift ? 1 : 0] || (shift && (v < 0 || v > INT64_MAX >> shift)))
		return -EINVAL;
	*out = (int64_t)((uint64_t)v << shift);
	return 0;
}

static int complete_one(struct gpunet_options *o, const struct option *t)
{
	const char *env = getenv(t->env), *from = "option";
	int64_t v = get(o, t);

	if (!v && env && *env) {
		from = "environment variable";
		if (parse(env, &v))
			return log_error(-EINVAL,
					 "%s %s: \"%s\" is not a number (K, M, G may follow)", from,
					 t->env, env);
	}
	if (!v && t->def)
		v = t->def;
	else if (v && (v < t->least || v > t->most || (t->power_of_two && (v & (v - 1)))))
		return log_error(-EINVAL, "%s %s: %lld is not within %lld to %lld%s", from,
				 *from == 'o' ? t->name : t->env, (long long)v, (long long)t->least,
				 (long long)t->most, t->power_of_two ? ", a power of two" : "");
	set(o, t, v);
	return 0;
}

int options_complete(struct gpunet_options *out, const struct gpunet_options *opt)
{
	const char *device = getenv("GPUNET_DEVICE"), *verbs = getenv("GPUNET_VERBS"),
		   *engine = getenv("GPUNET_ENGINE"), *memory = getenv("GPUNET_RDMA_MEMORY");
	unsigned i;
	int rc;

	memset(out, 0, sizeof(*out));
	if (opt && opt->size > sizeof(*out))
		return log_error(
			-EINVAL,
			"struct gpunet_options has %zu bytes, this library knows %zu: the program was built for a newer gpunet",
			opt->size, sizeof(*out));
	if (opt && opt->size < offsetof(struct gpunet_options, device) + sizeof(out->device))
		return log_error(
			-EINVAL,
			"struct gpunet_options has size %zu: initialise it with GPUNET_OPTIONS_INIT",
			opt->size);
	if (opt)
		memcpy(out, opt, opt->size);
	out->size = sizeof(*out);
	if (!out->device)
		out->device = device && *device ? device : "auto";
	if (!out->verbs)
		out->verbs = verbs && *verbs ? verbs : "auto";
	if (!out->engine)
		out->engine = engine && *engine ? engine : "auto";
	if (strcmp(out->engine, "auto") && strcmp(out->engine, "epoll") &&
	    strcmp(out->engine, "io_uring"))
		return log_error(-EINVAL, "option engine: \"%s\" is none of auto, epoll, io_uring",
				 out->engine);
	if (!out->rdma_memory)
		out->rdma_memory = memory && *memory ? memory : "auto";
	if (strcmp(out->rdma_memory, "auto") && strcmp(out->rdma_memory, "host"))
		return log_error(-EINVAL, "option rdma_memory is \"%s\": use auto or host",
				 out->rdma_memory);
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		rc = complete_one(out, &table[i]);
		if (rc)
			return rc;
	}
	if (out->slab_bytes < out->segment_bytes)
		return log_error(
			-EINVAL,
			"option slab_bytes: %zu is less than one segment (segment_bytes %zu)",
			out->slab_bytes, out->segment_bytes);
	out->calls = (out->calls + 63) / 64 * 64;
	return 0;
}

void options_for_device(struct gpunet_options *o, int is_gpu)
{
	if (!o->spin_us)
		o->spin_us = is_gpu ? 200 : 1;
}
