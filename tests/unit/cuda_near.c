/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for NICs on a GPU, as far as a machine without one can show: it is there, aligned, zero, has a dma-buf or says why not, and
 * what other memory of the GPU is exported from the right offset. Without a GPU there is nothing to see.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/platform.h"

#define SIZE ((size_t)3 << 20)

#define CHECK(cond)                                                                \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			return 1;                                                  \
		}                                                                  \
	} while (0)

/* A piece at an odd offset of ordinary memory. */
static int odd_pieces(const struct platform_ops *p, struct platform_dev *dev, bool exports)
{
	static const size_t at[] = { 0, 1, 256, 4096, 65536, 70001 };
	struct platform_mem m;
	size_t i;

	CHECK(!p->dev_alloc(dev, SIZE, &m));
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		uint64_t offset = UINT64_MAX;
		int fd = -1, rc = p->export_mem(dev, (char *)m.dev + at[i], 5000, &fd, &offset);

		printf("export at %zu: %d, offset %llu\n", at[i], rc, (unsigned long long)offset);
		CHECK(exports ? !rc : rc == -EOPNOTSUPP);
		if (rc)
			continue;
		CHECK(offset == ((uintptr_t)m.dev + at[i]) % (uint64_t)sysconf(_SC_PAGESIZE));
		CHECK(fd >= 0 && !close(fd));
	}
	p->dev_free(dev, &m);
	return 0;
}

int main(void)
{
	const struct platform_ops *p = &platform_cuda;
	struct platform_dev *dev;
	struct platform_near n;
	char why[320], bytes[16], zero[16] = { 0 };
	bool exports;
	int rc;

	if (p->count(why, sizeof(why)) <= 0) {
		printf("skipped: %s\n", why);
		return 77;
	}
	CHECK(!p->open(0, NULL, &dev));
	rc = p->near_alloc(dev, SIZE, &n);
	printf("near_alloc: %d, fd %d, offset %llu, flush %d, why \"%s\"\n", rc, n.fd,
	       (unsigned long long)n.fd_offset, n.flush, n.why);
	if (rc) {
		CHECK(n.why[0]);
		p->close(dev);
		return 0;
	}
	exports = n.fd >= 0;
	CHECK(n.bus == (uintptr_t)n.dev && n.bus % 65536 == 0 && n.size == SIZE);
	CHECK(exports ? !n.why[0] : n.why[0] != 0);
	CHECK(!p->dev_read(dev, &n.mem, (size_t)(n.bus - (uintptr_t)n.mem.dev) + SIZE - 16, bytes,
			   16));
	CHECK(!memcmp(bytes, zero, 16));
	if (n.flush)
		CHECK(!p->near_flush(dev));
	p->near_free(dev, &n);
	CHECK(n.fd == -1 && !n.dev);
	CHECK(!odd_pieces(p, dev, exports));
	p->close(dev);
	return 0;
}
