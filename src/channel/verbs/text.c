/* SPDX-License-Identifier: BSD-3-Clause */
/* What went wrong, in words. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "channel/verbs/rdc.h"

const char *rdc_name(const struct sockaddr_storage *a, char *out)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->ss_family == AF_INET) {
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(out, RDC_NAME, "%s:%u", host, ntohs(v4->sin_port));
	} else if (a->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(out, RDC_NAME, "[%s]:%u", host, ntohs(v6->sin6_port));
	} else {
		snprintf(out, RDC_NAME, "an unknown peer");
	}
	return out;
}

static int errno_of(uint32_t status)
{
	switch (status) {
	case VERBS_WC_RETRY_EXC_ERR:
	case VERBS_WC_RNR_RETRY_EXC_ERR:
	case VERBS_WC_RESP_TIMEOUT_ERR:
		return ETIMEDOUT;
	case VERBS_WC_REM_INV_REQ_ERR:
	case VERBS_WC_REM_ACCESS_ERR:
	case VERBS_WC_REM_OP_ERR:
	case VERBS_WC_REM_ABORT_ERR:
	case VERBS_WC_WR_FLUSH_ERR:
		return ECONNRESET;
	default:
		return EIO;
	}
}

static const char *hint(uint32_t status)
{
	switch (status) {
	case VERBS_WC_RETRY_EXC_ERR:
		return "the peer's machine or the network between is gone, its queue pair is, or its card's MTU is smaller";
	case VERBS_WC_RNR_RETRY_EXC_ERR:
		return "the peer's program does not run";
	case VERBS_WC_REM_ACCESS_ERR:
		return "the peer has closed the connection's memory, or its credits were wrong";
	case VERBS_WC_REM_INV_REQ_ERR:
	case VERBS_WC_REM_OP_ERR:
		return "the peer's device does not take what the protocol says";
	case VERBS_WC_LOC_PROT_ERR:
	case VERBS_WC_LOC_ACCESS_ERR:
		return "memory of this process was unmapped, or the peer wrote where it may not";
	default:
		return "see the kernel's log";
	}
}

int rdc_explain(struct rdc *c, const struct verbs_wc *wc, const char *what)
{
	char name[RDC_NAME];
	int err = errno_of(wc->status);

	if (c->told)
		return err;
	c->told = true;
	log_line(LOG_WARN,
		 "rdma: %s to %s failed: %s (status %u; %u retries of %u ms and more): %s", what,
		 rdc_name(&c->peer, name), verbs_status_text(wc->status), wc->status, RDC_RETRY,
		 (unsigned)((UINT64_C(4096) << RDC_ACK_TIMEOUT) / 1000000u), hint(wc->status));
	return err;
}

int rdc_explain_memory(int err, uint64_t bytes)
{
	struct rlimit l;

	if (err == -ENOMEM && !getrlimit(RLIMIT_MEMLOCK, &l) && l.rlim_cur != RLIM_INFINITY)
		return log_error(
			err,
			"rdma: cannot register %llu KiB: RLIMIT_MEMLOCK is %llu KiB; raise it with ulimit -l",
			(unsigned long long)(bytes + 1023) >> 10,
			(unsigned long long)l.rlim_cur >> 10);
	return log_error(err, "rdma: cannot register %llu bytes: %s", (unsigned long long)bytes,
			 strerror(-err));
}
