/* SPDX-License-Identifier: BSD-3-Clause */
/* What the examples share on the host's side, so that each of them is about its kernels. C11 and C++. */
#ifndef EXAMPLES_COMMON_EXAMPLE_H
#define EXAMPLES_COMMON_EXAMPLE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <gpunet/gpunet.h>

/* An address as the system has it; kernels take it as it is. */
struct example_addr {
	struct sockaddr_storage addr;
	uint32_t len;
};

/* What a kernel that listens is given and gives back, in memory that both sides see. */
struct example_listener {
	struct example_addr addr; /* in: where; out: where indeed (port 0 becomes a real one) */
	int32_t fd;               /* out: the socket, for the next kernel, or a negative errno */
};

struct example_args {
	const char *program, *device, *url;
	const char *text; /* a second argument of those that take one, else NULL */
};

/* argv: URL [text] [--device auto|cpu|cuda[:N]]. -1: go on; else the exit code, after --help or a message. */
int example_parse(struct example_args *args, int argc, char **argv, int takes_text);

/* Of args->url: tcp://host:port, unix:///path or unix:@name; 0, or -1 after a message. */
int example_address(const struct example_args *args, struct example_addr *out);

/* "listening on URL" */
void example_announce(const struct example_addr *addr);

/* Removes the file of a UNIX socket that this program has made. */
void example_remove(const struct example_addr *addr);

/* Opens a network whose waits SIGINT and SIGTERM end; NULL after a message. */
gpunet_t *example_open(const struct example_args *args);

/* Waits for the kernel that was launched last; 0, or a negative errno. */
int example_wait(gpunet_t *g);

/* Whether a signal came. */
int example_stopped(void);

/* Closes the network; what a kernel has sent goes out before. */
void example_close(gpunet_t *g);

/* What a server's kernel file offers; it is compiled once for each device. */
struct example_server {
	/* memory that both sides see */
	void *(*alloc)(size_t size);
	void (*release)(void *memory);
	/* these return 0 or a negative errno */
	int (*prepare)(void);
	int (*listen)(gpunet_t *g, struct example_listener *l);
	int (*serve)(gpunet_t *g, int listener);
};

/* Makes the listener, says where it listens, serves until a signal comes; the exit code. */
int example_serve(const struct example_args *args, gpunet_t *g,
		  const struct example_server *server);

/* Whether `g` is on a GPU. */
int example_on_gpu(gpunet_t *g);

/* "program: what: the errno in words"; returns 1, for main. */
int example_fail(const struct example_args *args, const char *what, int rc);

#endif
