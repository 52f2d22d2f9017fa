/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One run's program and what it must come to: connections, each with two flows of bytes; tasks that write or read a flow, some on the
 * host and some in a kernel's blocks. Byte number p of a flow is known to all, so whoever reads it can check it.
 *
 * The program is made so that it ends on any system that keeps POSIX's word: each flow has a writer and a reader that do not wait
 * for each other, or wait by gpoll for all that they do. So a run that does not end has met a fault of the library's.
 */
#ifndef GPUNET_TESTS_SIM_WORLD_H
#define GPUNET_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <gpunet/dev/socket.h>

#define MOST_CONNS 6
#define MOST_BLOCKS 8
#define MOST_TASKS 12 /* of one block */
#define HELLO 8       /* bytes of a connector's flow that say which connection it is */
#define BUFFER 32768

/* One direction of a connection. */
struct flow {
	unsigned id;
	uint64_t total;    /* bytes to be sent */
	uint64_t sent;     /* that a call took */
	uint64_t received; /* that a call gave */
	bool shared;       /* made of units (below): several write it or read it */
	bool cut;          /* a read ended in the middle of a unit */
	bool loose; /* its readers take what they get: all they know in the end is the bytes' sum */
	uint64_t sum[2];  /* of the bytes that were sent, and received */
	unsigned writers; /* tasks that are not done, of a flow that is shared */
	unsigned n_writers;
	bool ended; /* the writer has ended it, or is about to */
	bool eof;   /* the reader has seen its end */
};

/*
 * A shared flow's bytes: each 8 are a unit that says who wrote it, in which call, and which of the call's it is. So whoever reads
 * some can tell whether a call's bytes are together, in order, and none is there twice or missing.
 */
#define MOST_WRITERS 3
#define MOST_UNITS 512 /* of one call */

struct unit {
	uint8_t flow, writer;
	uint16_t call, number, of;
};

_Static_assert(sizeof(struct unit) == 8, "a unit is 8 bytes");

/* What one reader has seen last of a shared flow. */
struct place {
	struct unit last;
	bool any;
	uint16_t call
		[MOST_WRITERS]; /* the next one that may begin; of one reader among several: at least */
	uint8_t part[8];
	unsigned n_part;
};

/* One side of a connection: end 0 has connected, end 1 was accepted. It writes flow[its number], reads the other. */
struct end {
	bool host;
	uint64_t fd;    /* word that kernels wait for: descriptor + 1 */
	unsigned users; /* tasks that are not done */
	bool told;      /* a call was told of an error, or the receiving direction was shut down */
	bool deaf;      /* its receiving direction was shut down, alone */
	bool nonblock;  /* the socket is */
	bool left;      /* the last one to use it does not close it */
};

/* What may befall a connection. Errors are in order then, but bytes are the right ones as far as they come. */
enum chaos {
	CALM,
	BREAKS,      /* by itself */
	CLOSED,      /* by one of its tasks, while others use it */
	RESET,       /* the same with SO_LINGER of 0 */
	SHUT,        /* gshutdown in any direction by one of its tasks */
	DEAF,        /* its end on the host takes no more (SHUT_RD), and goes on sending */
	ALL_ABORTED, /* the host ends all waits, or the proxy does */
	KINDS
};

struct conn {
	unsigned id;
	enum chaos chaos;
	bool orderly; /* DEAF, of UNIX sockets: only calls that send are told */
	struct flow flow[2];
	struct end end[2];
};

struct task {
	struct conn *c;
	unsigned end;
	bool reads;
	bool done;
	bool limited; /* its calls have a time limit */
	/* Of a shared flow. */
	unsigned writer;
	uint64_t units; /* to be written */
	uint16_t call;  /* the next call's number */
	bool alone;     /* the only reader: it sees all units */
	struct place place;
};

struct block {
	struct task task[MOST_TASKS];
	unsigned n_tasks;
	bool polls;        /* does all of its tasks at once */
	bool full;         /* takes no more tasks */
	unsigned connects; /* bit set: connections that it makes */
	bool accepts;      /* as many as it gets hold of */
	char doing[80];    /* for reports */
	uint8_t buf[BUFFER];
};

struct world {
	gnet_t *net;
	uint64_t abort_after; /* ns; 0: never */
	bool dies;            /* then: not gpunet_abort, but a proxy thread ends */
	bool aborted;         /* the host has ended, or is about to end, all waits */
	struct conn conn[MOST_CONNS];
	unsigned n_conns;
	bool narrow; /* one connection, from the host, with more bytes than a ring holds: little else wakes anybody */
	struct block block[MOST_BLOCKS];
	unsigned n_blocks, n_threads;
	void *misuse; /* of a block more, or NULL */
	void *dgrams; /* of n_dgrams blocks more */
	unsigned n_dgrams;
	void *ends; /* of n_ends blocks more */
	unsigned n_ends;
	void *mixed; /* of n_mixed blocks more */
	unsigned n_mixed;
	void *dgmix; /* of n_dgmix blocks more */
	unsigned n_dgmix;
	int domain;
	struct sockaddr_storage addr[2]; /* of the kernel's listener, of the host's */
	socklen_t addr_len[2];
	int backlog;
	uint64_t up;        /* word: the kernel's listener + 1 */
	unsigned to_accept; /* by kernels */
	unsigned acceptors; /* blocks that still accept */
};

struct gpunet;

/* world.c */
void world_make(struct world *w);
void world_host_begin(
	struct world *w); /* starts the host's threads, and waits until its listener is there */
void world_chaos_begin(struct world *w, struct gpunet *g); /* what happens at some time by itself */
void world_chaos_end(struct world *w);
void world_host_end(struct world *w);
void world_check(const struct world *w);
/* Sockets that kernels do not close. */
unsigned world_left(const struct world *w);
void world_report(void);

uint8_t flow_byte(const struct flow *f, uint64_t pos);
void flow_fill(const struct flow *f, uint64_t pos, uint8_t *buf, uint64_t n);
/* Ends the run if these are not the flow's bytes at `pos`. */
void flow_check(const struct flow *f, uint64_t pos, const uint8_t *buf, uint64_t n);
uint64_t bytes_sum(const uint8_t *buf, uint64_t n);
/* The next call of a task that writes a shared flow: fills `buf` with n units. */
void units_fill(struct task *t, uint8_t *buf, unsigned n);
/* What a reader of a shared flow got. */
void units_check(struct task *t, const uint8_t *buf, uint64_t n);
/* Its writer writes no more, or is about to end it. */
void flow_end(struct flow *f);
/* What a read gave: bytes that are consumed, the end, or an error. */
void flow_got(struct conn *c, unsigned end, const uint8_t *buf, int64_t rc);
/* Is that how a call ends when the host, or the proxy, has ended all waits? */
bool wait_ended(const struct world *w, int64_t rc);
/* Ends the run if a call on this end of a connection must not fail so. */
void call_failed(struct conn *c, unsigned end, const char *call, int64_t rc);

/* program.c */
void program_launch(struct gpunet *g, struct world *w);

#endif
