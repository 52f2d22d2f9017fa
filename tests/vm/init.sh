#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Process 1 of a test machine: drivers, addresses, the RDMA device over the network card, then the agent.
# The kernel's command line has node=N (1 or 2) and mtu=BYTES.

export PATH=/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/shm
mount -t tmpfs shm /dev/shm
chmod 1777 /tmp /dev/shm
for word in $(</proc/cmdline); do
	case $word in node=* | mtu=*) declare "$word" ;; esac
done
while read -r module; do
	insmod "/modules/$module" || echo "init: $module was not loaded"
done </modules/order

echo "vm$node" >/proc/sys/kernel/hostname
ip link set lo up
# eth1 is the host's way to the agent; eth0 is the network under test.
ip addr add "10.9.$node.2/30" dev eth1
ip link set eth1 up
ip link set eth0 mtu "$mtu"
ip addr add "10.0.2.$node/24" dev eth0
ip addr add "fd00::$node/64" dev eth0 nodad
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0 || echo "init: no rxe0"
ulimit -l unlimited
exec agent
