/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transport serves what. A new transport adds its line here. */
#include "channel/channel.h"
#include "channel/tcp/tcp.h"

int channel_create(int domain, int type, int protocol, struct channel **out)
{
	return tcp_create(domain, type, protocol, out);
}
