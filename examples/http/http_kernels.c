/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A web server in a kernel: HTTP/1.1, GET and HEAD, keep-alive, pipelined requests. One source for both devices.
 *
 * A block serves a connection. Its threads receive, search for the end of the request and send together; one of them
 * reads the request and writes the answer, into memory that the block shares.
 */
#include <gpunet/dev/socket.h>

#include "../common/example.h"
#include "../common/listen.h"
#include "../common/memory.h"
#include "parse.h"

#define BLOCKS 32
#define THREADS 64
#define HEAD_MAX 8192 /* a longer request head is refused */
#define ANSWER_MAX 2048
#define IDLE_NS \
	10000000000 /* a browser that is silent for so long loses its connection, others wait for the block */
#define REST_MAX (1 << 20) /* read after the last answer, so that it is not lost in a reset */
#define REST_NS 1000000000

/* One for each block. A kernel has one such struct, since shared memory of several functions adds up. */
struct http_block {
	char in[HEAD_MAX];
	char out[ANSWER_MAX];
	unsigned out_len;
	unsigned
		head_end; /* length of the first request's head in `in`; all ones: it is not complete */
	struct http_request request;
	struct gnet_pollfd wait;
};

/* ---- the answer: written by one thread ---------------------------------------------------------- */

GNET_DEV void put(struct http_block *b, const char *text)
{
	while (*text && b->out_len < ANSWER_MAX)
		b->out[b->out_len++] = *text++;
}

/* With a fixed width, so that a page is equally long whoever answers. */
GNET_DEV void put_number(struct http_block *b, unsigned n, unsigned width)
{
	char digits[12];
	unsigned i = sizeof(digits) - 1;

	digits[i] = 0;
	do {
		digits[--i] = (char)('0' + n % 10);
		n /= 10;
	} while (n && i);
	while (sizeof(digits) - 1 - i < width && i)
		digits[--i] = ' ';
	put(b, digits + i);
}

GNET_DEV void put_page(struct http_block *b)
{
	if (b->request.page == HTTP_PAGE_HELLO) {
		put(b, "hello from a kernel\n");
		return;
	}
	put(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
	       "<title>gpunet</title></head>\n<body><h1>Hello from a kernel</h1>\n"
	       "<p>This page was written and sent by block ");
	put_number(b, blockIdx.x, 3);
	put(b, " of ");
	put_number(b, gridDim.x, 3);
	put(b, ", ");
	put_number(b, blockDim.x, 4);
	put(b, " threads.</p>\n<p><a href=\"/hello\">The same in one line</a></p></body></html>\n");
}

GNET_DEV const char *reason(int status)
{
	switch (status) {
	case 200:
		return "200 OK";
	case 404:
		return "404 Not Found";
	case 405:
		return "405 Method Not Allowed";
	case 431:
		return "431 Request Header Fields Too Large";
	case 505:
		return "505 HTTP Version Not Supported";
	default:
		return "400 Bad Request";
	}
}

GNET_DEV void put_body(struct http_block *b)
{
	if (b->request.status == 200) {
		put_page(b);
		return;
	}
	put(b, reason(b->request.status));
	put(b, "\n");
}

GNET_DEV void write_answer(struct http_block *b)
{
	const struct http_request *r = &b->request;
	unsigned length;

	b->out_len = 0;
	if (r->status == 0)
		return;
	/* The body first, only to know its length. */
	put_body(b);
	length = b->out_len;

	b->out_len = 0;
	put(b, "HTTP/1.1 ");
	put(b, reason(r->status));
	put(b, "\r\nServer: gpunet\r\nContent-Type: ");
	put(b, r->status == 200 && r->page == HTTP_PAGE_ROOT ? "text/html; charset=utf-8"
							     : "text/plain");
	put(b, "\r\nContent-Length: ");
	put_number(b, length, 1);
	if (r->status == 405)
		put(b, "\r\nAllow: GET, HEAD");
	put(b,
	    r->keep_alive ? "\r\nConnection: keep-alive\r\n\r\n" : "\r\nConnection: close\r\n\r\n");
	if (!r->head)
		put_body(b);
}

/* ---- one connection: all threads of a block ----------------------------------------------------- */

/* Looks for the empty line that ends a request's head; each thread looks at every blockDim.x-th byte. */
GNET_DEV unsigned find_end(struct http_block *b, unsigned from, unsigned used)
{
	unsigned i, end;

	if (threadIdx.x == 0)
		b->head_end = 0xffffffffu;
	__syncthreads();
	for (i = from + threadIdx.x; i + 3 < used; i += blockDim.x) {
		if (b->in[i] == '\r' && b->in[i + 1] == '\n' && b->in[i + 2] == '\r' &&
		    b->in[i + 3] == '\n')
			atomicMin(&b->head_end, i + 4);
	}
	__syncthreads();
	end = b->head_end;
	/* Nobody may search again before everybody has read this result. */
	__syncthreads();
	return end;
}

/* grecv with a time limit, after which it says that the stream has ended. */
GNET_DEV int64_t receive(gnet_t *net, int fd, struct http_block *b, unsigned at, int64_t limit_ns)
{
	/* The call is a barrier, so all threads see what one has written. */
	if (threadIdx.x == 0) {
		b->wait.fd = fd;
		b->wait.events = GNET_POLLIN;
	}
	if (gpoll(net, &b->wait, 1, limit_ns) <= 0)
		return 0;
	return grecv(net, fd, b->in + at, HEAD_MAX - at, 0);
}

/* Receives until a whole request head is there. Its length, 0: the connection has ended, or the head is too long. */
GNET_DEV unsigned receive_head(gnet_t *net, int fd, struct http_block *b, unsigned *used)
{
	unsigned from = 0, end;

	while ((end = find_end(b, from, *used)) > *used) {
		int64_t n;

		if (*used == HEAD_MAX)
			return 0;
		from = *used > 3 ? *used - 3 : 0;
		n = receive(net, fd, b, *used, IDLE_NS);
		if (n <= 0) {
			*used = 0;
			return 0;
		}
		*used += (unsigned)n;
	}
	return end;
}

/* Moves what follows the first request to the beginning. */
GNET_DEV void drop_head(struct http_block *b, unsigned end, unsigned used)
{
	unsigned i;

	if (threadIdx.x == 0) {
		for (i = end; i < used; i++)
			b->in[i - end] = b->in[i];
	}
	__syncthreads();
}

/* Answers the head of `end` bytes, 0: one that is too long. Whether the connection goes on. */
GNET_DEV int answer(gnet_t *net, int fd, struct http_block *b, unsigned end)
{
	int64_t n;
	int goes_on;

	if (threadIdx.x == 0) {
		struct http_text text = { b->in, b->in + end };

		http_parse(&b->request, text);
		write_answer(b);
	}
	__syncthreads();
	n = gsend(net, fd, b->out, b->out_len, 0);
	goes_on = b->request.keep_alive && n == (int64_t)b->out_len;
	/* The next answer is written when everybody is done with this one. */
	__syncthreads();
	return goes_on;
}

GNET_DEV void serve(gnet_t *net, int fd, struct http_block *b)
{
	unsigned used = 0, end, rest = 0;
	int goes_on;
	int64_t n;

	do {
		end = receive_head(net, fd, b, &used);
		if (!used)
			return;
		goes_on = answer(net, fd, b, end);
		drop_head(b, end, used);
		used -= end;
	} while (goes_on);

	/* Closing with bytes unread would reset the connection, and the answer might be lost. */
	gshutdown(net, fd, GNET_SHUT_WR);
	while (rest < REST_MAX && (n = receive(net, fd, b, 0, REST_NS)) > 0)
		rest += (unsigned)n;
}

struct listen_args {
	gnet_t *net;
	struct example_listener *listener;
};

GNET_KERNEL(http_listen, struct listen_args, a)
{
	example_listen(a.net, a.listener);
}

struct serve_args {
	gnet_t *net;
	int listener;
};

GNET_KERNEL_MAX(http_serve, struct serve_args, a, THREADS)
{
	__shared__ struct http_block block;
	int fd;

	while ((fd = gaccept(a.net, a.listener, NULL, NULL)) >= 0) {
		serve(a.net, fd, &block);
		gclose(a.net, fd);
	}
}

/* ---- from here on the host runs ----------------------------------------------------------------- */

static int prepare(void)
{
	int rc = GPUNET_PREPARE(http_listen);

	return rc ? rc : GPUNET_PREPARE(http_serve);
}

static int launch_listen(gpunet_t *g, struct example_listener *l)
{
	struct gpunet_grid grid = { 1, 1, 1, THREADS, 1, 1, 0 };
	struct listen_args args = { gpunet_device(g), l };

	return GPUNET_LAUNCH(g, http_listen, grid, args);
}

static int launch_serve(gpunet_t *g, int listener)
{
	struct gpunet_grid grid = { BLOCKS, 1, 1, THREADS, 1, 1, 0 };
	struct serve_args args = { gpunet_device(g), listener };

	return GPUNET_LAUNCH(g, http_serve, grid, args);
}

#ifdef __CUDACC__
extern "C" const struct example_server http_cuda = {
#else
const struct example_server http_cpu = {
#endif
	example_alloc, example_free, prepare, launch_listen, launch_serve,
};
