/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench-sock: what a kernel's sockets cost, each figure beside what a user would take instead, both measured in one run.
 * Failures end the program with a message: there is nobody who could go on.
 */
#ifndef GPUNET_BENCH_SOCK_H
#define GPUNET_BENCH_SOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#include "../figure.h"
#include "kernels.h"

/* ---- main.c: options and results ---------------------------------------------------------------------------------------- */

struct bench_opt {
	const char *device; /* "cpu", "cuda" */
	bool gpu, quick;
	const char *transport; /* "tcp", "unix"; NULL: both */
	unsigned reps;         /* runs of each figure, of which the median counts */
};

extern struct bench_opt opt;

/* ---- place.c: which CPU a thread runs on ------------------------------------------------------------------ */

enum place {
	PLACE_CLIENT,  /* one client thread */
	PLACE_SERVER,  /* a server's thread, and what a network starts */
	PLACE_HAND,    /* the thread that bytes are handed to */
	PLACE_CLIENTS, /* several client threads */
	PLACE_SERVERS, /* several server threads */
	PLACE_ANY
};

/* Where the calling thread, and those that it makes, run from now on. Does nothing on a machine of few CPUs. */
void place(enum place p);
void place_describe(char *out, size_t size);
void place_init(void);

/* ---- client.c ------------------------------------------------------------------------------------------------------------ */

struct address {
	struct sockaddr_storage ss;
	socklen_t len;
};

/* 127.0.0.1 and any port, or an abstract name that nobody else has. */
void address_new(const char *transport, struct address *a);
int dial(const struct address *a);

ssize_t spin_recv(int fd, void *buf, size_t n);
/* All of it, or -1. */
ssize_t send_all(int fd, const void *buf, size_t n);

struct echo_times {
	double p50, p99;
};

/* `rounds` messages of `size` bytes there and back, each checked. */
void client_echo(const struct address *a, unsigned size, unsigned rounds, struct echo_times *t);
/* A stream of `total` bytes to a BENCH_SINK or from a BENCH_SOURCE: GB/s. */
double client_stream(const struct address *a, enum bench_mode mode, uint64_t total);
/* `conns` of them at once, each from a thread of its own: GB/s of all. */
double client_streams(const struct address *a, enum bench_mode mode, uint64_t total,
		      unsigned conns);
/* Connects and waits for the end, `count` times in all: connections a second. */
double client_accepts(const struct address *a, unsigned count);
/* For `seconds`, from four threads: each sends 64 B on all of its sockets, then waits for all answers. Messages a second. */
double client_busy(const int *fd, unsigned n, double seconds);

/* ---- servers.c: the CPU as a server -------------------------------------------------------------------------------------- */

enum server_kind {
	SERVER_LOOP,   /* a thread that spins and never touches the bytes */
	SERVER_HANDED, /* bytes pass through a ring to or from a thread on another core */
	SERVER_MAIL,   /* each message goes to a hand-written kernel through pinned flags */
	SERVER_COPY, /* each message is copied to the GPU, a kernel launched, the answer copied back */
	SERVER_SHARED /* four threads, each serves its share of several connections */
};

#define RING_BYTES (1u << 20) /* as option segment_bytes has it by default */

struct cpu_server;

struct cpu_server *cpu_server_start(enum server_kind kind, const char *transport,
				    const struct bench_kernels *k, unsigned conns);
const struct address *cpu_server_address(const struct cpu_server *s);
/* What it does with the next connection. */
struct bench_order *cpu_server_order(struct cpu_server *s);
void cpu_server_stop(struct cpu_server *s);

/* ---- net.c: a kernel as a server ------------------------------------------------------------------------------------------ */

struct gpu_server {
	gpunet_t *g;
	const struct bench_kernels *k;
	struct bench_shared *shared;
	struct bench_listen *listen[3];
	void *late_buf;
	struct address at, second_at, silent_at;
	struct bench_serve args;
};

const struct bench_kernels *bench_kernels(void);

/* Opens a network and makes the listeners. Members of `want` that are 0 are the library's defaults. */
void gpu_server_open(struct gpu_server *s, const char *transport,
		     const struct gpunet_options *want);
void gpu_server_serve(struct gpu_server *s, unsigned servers, unsigned holders, unsigned waiters,
		      unsigned threads);
void gpu_server_late(struct gpu_server *s, unsigned threads);
void gpu_server_order(struct gpu_server *s, const struct bench_order *o);
/* Ends the program if the kernel has failed. */
void gpu_server_check(struct gpu_server *s);
void gpu_server_close(struct gpu_server *s);

/* ---- rows_*.c -------------------------------------------------------------------------------------------------------------- */

void row_echo(const char *transport);
void row_stream(const char *transport);
void row_unaligned(const char *transport);
void row_curves(const char *transport);
void row_streams8(const char *transport);
void row_accepts(const char *transport);
void row_sockets10k(const char *transport);
void row_waiters(const char *transport);
void row_idle(const char *transport);

#endif
