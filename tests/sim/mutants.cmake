# SPDX-License-Identifier: BSD-3-Clause
#
# Planted faults. Each is a change of one line in the copy of the sources that the simulation is built from, and does nothing
# unless the simulation runs with --mutant NUMBER. A simulation that does not find them would not find their like.
#
# sim_mutant_of(NUMBER FILE "text of the source" "text in its place"): the text must be there exactly once. In the new
# text @M@ stands for "this mutant is in force".

set(sim_mutants)
set(sim_mutated)
set(sim_lost)
set(sim_copy ${CMAKE_CURRENT_BINARY_DIR}/copy)

function(sim_mutant_of number file old new)
	set(copy ${sim_copy}/${file})
	string(MAKE_C_IDENTIFIER ${file} name)
	if(NOT DEFINED sim_text_${name})
		file(READ ${PROJECT_SOURCE_DIR}/${file} sim_text_${name})
		set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
		set(sim_mutated ${sim_mutated} ${file} PARENT_SCOPE)
	endif()
	set(text "${sim_text_${name}}")
	string(FIND "${text}" "${old}" first)
	string(FIND "${text}" "${old}" last REVERSE)
	if(first EQUAL -1 OR NOT first EQUAL last)
		message(WARNING "tests/sim/mutants.cmake: mutant ${number}: its text is not in ${file} once")
		set(sim_lost ${sim_lost} ${number} PARENT_SCOPE)
	else()
		string(REPLACE "@M@" "(sim_mutant == ${number} ? 1 : 0)" new "${new}")
		string(REPLACE "${old}" "${new}" text "${text}")
	endif()
	set(sim_text_${name} "${text}" PARENT_SCOPE)
	set(sim_mutants ${sim_mutants} ${number} PARENT_SCOPE)
endfunction()

# sim_change(FILE "text" "new text"): no fault, but what the rules allow and this machine does not do by itself.
macro(sim_change file old new)
	sim_mutant_of(0 ${file} "${old}" "${new}")
	list(REMOVE_ITEM sim_mutants 0)
endmacro()

# Blocks have two warps at most, and all thread-local memory is copied at each switch.
sim_change(include/gpunet/dev/impl/scope.h
	"__shared__ struct gnet__scratch s[32];"
	"__shared__ struct gnet__scratch s[2];")

# ---- lost wake-ups: the proxy

# Z1: the queue is looked at once more when the mark is set.
sim_mutant_of(1 src/proxy/thread.c
	"if (proxy_sq_ready(&p->params, t->index, t->head) ||"
	"if ((!@M@ && proxy_sq_ready(&p->params, t->index, t->head)) ||")
# Z1, Z3: and so are heads, and what other threads have ordered.
sim_mutant_of(2 src/proxy/thread.c
	"(h->has_work && h->has_work(t, h->ctx)) ||"
	"(!@M@ && h->has_work && h->has_work(t, h->ctx)) ||")
# Z3: a kernel that has moved a head wakes a thread that waits for room.
sim_mutant_of(3 src/proxy/proxy.c
	"if ((q & GNET_KICK_ROOM) && atomic_fetch_or(&t->mark, 0) != ASLEEP_FOR_ROOM)"
	"if ((q & GNET_KICK_ROOM) && (@M@ || atomic_fetch_or(&t->mark, 0) != ASLEEP_FOR_ROOM))")
# Z3: the mark says that the thread waits for room.
sim_mutant_of(4 src/proxy/thread.c
	"bool room = h->waits_for_room && h->waits_for_room(t, h->ctx);"
	"bool room = !@M@ && h->waits_for_room && h->waits_for_room(t, h->ctx);")
# What is not watched yet is, before its thread sleeps.
sim_mutant_of(6 src/socket/table.c
	"	young_rest(t);\n"
	"	if (!@M@)\n		young_rest(t);\n")
# A kernel that has stored an entry kicks.
sim_mutant_of(5 include/gpunet/dev/impl/bus.h
	"		gnet_sys_store(&e->cell[i], tag);\n	gnet__kick(net, q);"
	"		gnet_sys_store(&e->cell[i], tag);\n	if (!@M@)\n		gnet__kick(net, q);")

# ---- lost wake-ups: kernels

# Senders are told of room, receivers of bytes, callers of answers.
sim_mutant_of(10 src/stream/tx.c
	"stream_tell(s, GNET_WAIT_TX, &s->bus->txw);"
	"if (!@M@)\n		stream_tell(s, GNET_WAIT_TX, &s->bus->txw);")
sim_mutant_of(11 src/stream/rx.c
	"stream_tell(s, GNET_WAIT_RX, &s->bus->line.cell[0]);"
	"if (!@M@)\n		stream_tell(s, GNET_WAIT_RX, &s->bus->line.cell[0]);")
sim_mutant_of(12 src/proxy/proxy.c
	"proxy_touched(t, &t->p->params.calls[call].reply);"
	"if (!@M@)\n		proxy_touched(t, &t->p->params.calls[call].reply);")
# An event between the look and the sleep keeps a block awake.
sim_mutant_of(13 src/platform/cpu/event.c
	"if (cpu_events() == seen)"
	"if (@M@ || cpu_events() == seen)")
# Whoever gives a side back tells those that wait for it.
sim_mutant_of(14 include/gpunet/dev/order.h
	"	__atomic_fetch_add(p, v, __ATOMIC_RELEASE);\n	gpunet_cpu_event_at(p);"
	"	__atomic_fetch_add(p, v, __ATOMIC_RELEASE);\n	if (!@M@)\n		gpunet_cpu_event_at(p);")

# ---- events of the host's sockets

sim_mutant_of(20 src/stream/rx.c
	"	else if (rc == -EINTR)\n		stream_run(s);"
	"	else if (rc == -EINTR && !@M@)\n		stream_run(s);\n	else if (rc == -EINTR)\n		s->readable = false;")
sim_mutant_of(21 src/channel/tcp/tcp.c
	"if (e & (EPOLLOUT | EPOLLHUP | EPOLLERR))"
	"if (!@M@ && (e & (EPOLLOUT | EPOLLHUP | EPOLLERR)))")
# T8: a full socket is tried, since no event may come.
sim_mutant_of(23 src/stream/tx.c
	"			stream_try_full(s);"
	"			if (!@M@)\n				stream_try_full(s);")
# What was short is tried again.
sim_mutant_of(22 src/stream/tx.c
	"	if (rc == -ENOBUFS || rc == -ENOMEM) {\n		stream_later(s);"
	"	if (rc == -ENOBUFS || rc == -ENOMEM) {\n		if (!@M@)\n			stream_later(s);")

# ---- bytes

# R1: inline only when all was consumed.
sim_mutant_of(30 src/stream/rx.c
	"if (unread || n > GNET_INLINE_MAX || ("
	"if ((!@M@ && unread) || n > GNET_INLINE_MAX || (")
# R5
sim_mutant_of(31 src/stream/rx.c
	"room = size - s->rx_unread,"
	"room = @M@ ? size : size - s->rx_unread,")
# R7
sim_mutant_of(32 src/stream/rx.c
	"if (s->rx_io || __atomic_load_n(&s->bus->head, __ATOMIC_ACQUIRE) != s->rx_tail)"
	"if (s->rx_io || (!@M@ && __atomic_load_n(&s->bus->head, __ATOMIC_ACQUIRE) != s->rx_tail))")
# T4
sim_mutant_of(33 src/stream/tx.c
	"uint64_t v = (s->tx_head & GNET_TXW_POS_MASK) |"
	"uint64_t v = ((@M@ ? s->tx_tail : s->tx_head) & GNET_TXW_POS_MASK) |")
# All threads have copied before the head moves.
sim_mutant_of(34 include/gpunet/dev/impl/stream.h
	"		gnet__recv_remember(net, fd, s, (uint64_t)c->rc);\n	gnet__sync(sc);"
	"		gnet__recv_remember(net, fd, s, (uint64_t)c->rc);\n	if (!@M@)\n		gnet__sync(sc);")
# S3: all threads have stored before the tail is told: by a call that takes the send side, and by what a scope remembers.
sim_mutant_of(35 include/gpunet/dev/impl/stream.h
	"gnet__ring_write(sc, net, r, s->seg, s->at, src, (uint64_t)rc);\n		gnet__sync(sc);"
	"if (!@M@)\n			gnet__ring_write(sc, net, r, s->seg, s->at, src, (uint64_t)rc);\n		gnet__sync(sc);")
sim_mutant_of(35 include/gpunet/dev/impl/stream.h
	"			gnet__send_tail_lanes(sc, net, fd, s, (uint64_t)rc);"
	"			gnet__send_tail_lanes(sc, net, fd, s, (uint64_t)rc);\n		if (@M@)\n			gnet__ring_write(sc, net, r, s->seg, s->at, src, (uint64_t)rc);")
sim_mutant_of(36 include/gpunet/dev/impl/stream.h
	"	gnet__rings_write(sc, net, r, s->seg, s->at, src, len);\n	gnet__sync(sc);"
	"	if (!@M@)\n		gnet__rings_write(sc, net, r, s->seg, s->at, src, len);\n	gnet__sync(sc);")
sim_mutant_of(36 include/gpunet/dev/impl/stream.h
	"		gnet__tail_cells(sc, net, fd, s, tail);"
	"		gnet__tail_cells(sc, net, fd, s, tail);\n	if (@M@)\n		gnet__rings_write(sc, net, r, s->seg, s->at, src, len);")

# ---- the end

# A shutdown waits until all is sent, and so does a close.
sim_mutant_of(40 src/stream/tx.c
	"if (s->shut_wr && !s->tx_dead && s->tx_head == s->tx_tail)"
	"if (s->shut_wr && !s->tx_dead && (@M@ || s->tx_head == s->tx_tail))")
sim_mutant_of(41 src/stream/tx.c
	"if (!s->ch || s->tx_dead || s->reset || s->tx_head == s->tx_tail) {"
	"if (!s->ch || s->tx_dead || s->reset || @M@ || s->tx_head == s->tx_tail) {")
# A close waits for the calls that are in the socket.
sim_mutant_of(42 include/gpunet/dev/impl/socket.h
	"		if (!gnet__in_use(sk)) {"
	"		if (@M@ || !gnet__in_use(sk)) {")

# ---- memory like a GPU's (sim_late): what a block stores before it gives a side back without release arrives after that

sim_change(include/gpunet/dev/impl/stream.h
	"		gnet__recv_done(net, fd, sk, s->head + (uint64_t)c->rc, cells);\n		gnet_dev_add_relaxed(&sk->rx, ((uint64_t)c->rc << GNET_L_AT_SHIFT) - GNET_L_HELD);"
	"		if (!sim_late)\n			gnet__recv_done(net, fd, sk, s->head + (uint64_t)c->rc, cells);\n		gnet_dev_add_relaxed(&sk->rx, ((uint64_t)c->rc << GNET_L_AT_SHIFT) - GNET_L_HELD);\n		if (sim_late) {\n			sim_stall();\n			sim_in_life(fd, gnet_dev_load(&sk->life));\n			gnet__recv_done(net, fd, sk, s->head + (uint64_t)c->rc, cells);\n			gpunet_cpu_event_at(&sk->rx_head);\n		}")
sim_change(include/gpunet/dev/impl/stream.h
	"	gnet__recv_publish(q->sk, bus, q->hops, q->head + k->n, 1);"
	"	if (!sim_late)\n		gnet__recv_publish(q->sk, bus, q->hops, q->head + k->n, 1);")
sim_change(include/gpunet/dev/impl/stream.h
	"	gnet_dev_add_relaxed(&q->sk->rx, ((uint64_t)k->n << GNET_L_AT_SHIFT) - GNET_L_HELD);"
	"	gnet_dev_add_relaxed(&q->sk->rx, ((uint64_t)k->n << GNET_L_AT_SHIFT) - GNET_L_HELD);\n	if (sim_late) {\n		sim_stall();\n		sim_in_life(fd, gnet_dev_load(&q->sk->life));\n		gnet__recv_publish(q->sk, bus, q->hops, q->head + k->n, 1);\n		gnet__kick(net, gnet__queue(net, fd) | GNET_KICK_ROOM);\n		gpunet_cpu_event_at(&q->sk->rx_head);\n	}")
sim_change(include/gpunet/dev/impl/scope.h
	"	k->left -= len;\n	gnet_dev_store(&k->sk->tx_tail, k->t.tail);"
	"	k->left -= len;\n	if (!sim_late)\n		gnet_dev_store(&k->sk->tx_tail, k->t.tail);")
sim_change(include/gpunet/dev/impl/scope.h
	"	uint64_t word = k->tx, change = gnet__word_at(word, k->t.tail) - word - GNET_L_HELD;\n"
	"	uint64_t word = k->tx, change = gnet__word_at(word, k->t.tail) - word - GNET_L_HELD, late = k->t.tail;\n")
sim_change(include/gpunet/dev/impl/scope.h
	"		gnet_dev_add_relaxed(&k->sk->tx, change);\n	else"
	"		gnet_dev_add_relaxed(&k->sk->tx, change);\n	else if (sim_late)\n		gnet_dev_store(&k->sk->tx_tail, late), gnet_dev_add_release(&k->sk->tx, change), late = 0;\n	else")
sim_change(include/gpunet/dev/impl/scope.h
	"/* more than the position was stored */\n		gnet_dev_add_release(&k->sk->tx, change);"
	"/* more than the position was stored */\n		gnet_dev_add_release(&k->sk->tx, change);\n	if (sim_late && late) {\n		sim_stall();\n		sim_in_life(fd, gnet_dev_load(&k->sk->life));\n		gnet_dev_store(&k->sk->tx_tail, late);\n		gpunet_cpu_event_at(&k->sk->tx_tail);\n	}")

# The head comes last, and must not be older than what is there (K2); whoever waits for it does.
sim_change(include/gpunet/dev/impl/stream.h
	"	/* Cells were loaded by atomics and their bytes used already;"
	"	if (sim_late) {\n		sim_stall();\n		sim_goes_on(gnet_sys_load(&bus->head), head);\n	}\n	/* Cells were loaded by atomics and their bytes used already;")
sim_change(include/gpunet/dev/impl/sock.h
	"turn < 1000; turn++)"
	"turn < (sim_late ? 1u << 20 : 1000u); turn++)")

# ---- sides among blocks

# K1: the word must be the one that the scope remembers.
sim_mutant_of(50 include/gpunet/dev/impl/scope.h
	"if (t->old != t->word || t->pos - head"
	"if ((!@M@ && t->old != t->word) || t->pos - head")
sim_mutant_of(51 include/gpunet/dev/impl/scope.h
	"gnet_dev_cas_relaxed(&k->sk->rx, word, word | GNET_L_HELD) != word)"
	"(@M@ ? gnet_dev_or(&k->sk->rx, GNET_L_HELD) & GNET_L_HELD : gnet_dev_cas_relaxed(&k->sk->rx, word, word | GNET_L_HELD) != word))")
# K1: and there must be room in the window.
sim_mutant_of(52 include/gpunet/dev/impl/scope.h
	"len - 1 >= most || k->left < len ||"
	"len - 1 >= most || (!@M@ && k->left < len) ||")
# K1, S2: the place in the queue that a wrong guess has taken becomes a no-op.
sim_mutant_of(53 include/gpunet/dev/impl/scope.h
	"	if (!gnet__sq_room(net, k->d, k->queue, pos, gnet_dev_load_acquire(&k->d->head)))"
	"	if (!@M@ && !gnet__sq_room(net, k->d, k->queue, pos, gnet_dev_load_acquire(&k->d->head)))")
# K2: whoever takes a side waits until the position is there, and the head.
sim_mutant_of(54 include/gpunet/dev/impl/sock.h
	"while (!rc && (uint32_t)gnet_dev_load(&side[1]) != (uint32_t)(word >> GNET_L_AT_SHIFT))"
	"while (!@M@ && !rc && (uint32_t)gnet_dev_load(&side[1]) != (uint32_t)(word >> GNET_L_AT_SHIFT))")
sim_mutant_of(55 include/gpunet/dev/impl/stream.h
	"	if (c->anew)\n		gnet__settle_head(net, fd, c->head, s->wait.word);"
	"	if (c->anew && !@M@)\n		gnet__settle_head(net, fd, c->head, s->wait.word);")
# K2: a side that is given back says where the position is.
sim_mutant_of(56 include/gpunet/dev/impl/stream.h
	"((uint64_t)k->n << GNET_L_AT_SHIFT) - GNET_L_HELD);"
	"(@M@ ? 0 : (uint64_t)k->n << GNET_L_AT_SHIFT) - GNET_L_HELD);")

# K3: a socket ends when the positions have arrived that its words speak of. 
sim_mutant_of(57 include/gpunet/dev/impl/socket.h
	"	rc = gnet__settle(net, &sk->rx, rx);"
	"	rc = @M@ ? 0 : gnet__settle(net, &sk->rx, rx);")
sim_mutant_of(57 include/gpunet/dev/impl/socket.h
	"	gnet__settle_head(net, fd, gnet_sys_load("
	"	if (!@M@)\n		gnet__settle_head(net, fd, gnet_sys_load(")
sim_mutant_of(58 include/gpunet/dev/impl/socket.h
	"		rc = gnet__settle(net, &sk->tx, gnet_dev_load(&sk->tx));"
	"		rc = @M@ ? 0 : gnet__settle(net, &sk->tx, gnet_dev_load(&sk->tx));")

# ---- borrows

# B1: a borrow is counted.
sim_mutant_of(60 include/gpunet/dev/impl/borrow.h
	"	gnet_dev_add(&sk->life, GNET_L_LENT);"
	"	if (!@M@)\n		gnet_dev_add(&sk->life, GNET_L_LENT);")
# B2: head does not move while bytes are lent.
sim_mutant_of(61 include/gpunet/dev/impl/borrow.h
	"		gnet__lend(s->sk, &s->sk->rx, &s->sk->rx_lent,"
	"		if (@M@)\n			gnet_sys_store_release(&net->bus[GNET_FD_SLOT(fd)].head, gnet_dev_load(&s->sk->rx_head) + (uint64_t)rc);\n		gnet__lend(s->sk, &s->sk->rx, &s->sk->rx_lent,")
# B2: what is not given back as consumed comes again.
sim_mutant_of(62 include/gpunet/dev/impl/borrow.h
	"		gnet__recv_done(net, fd, sk, gnet_dev_load(&sk->rx_head) + n, 0);"
	"		gnet__recv_done(net, fd, sk, gnet_dev_load(&sk->rx_head) + (@M@ ? sk->rx_lent & 0xffffffff : n), 0);")
# B3: room is waited for.
sim_mutant_of(63 include/gpunet/dev/impl/borrow.h
	"	if (!rc)\n		rc = gnet__send_wait(net, fd, s->sk, t, n, &s->wait);"
	"	if (!rc && @M@)\n		rc = (int64_t)n;\n	else if (!rc)\n		rc = gnet__send_wait(net, fd, s->sk, t, n, &s->wait);")
# B4: who gives back is a user, and gclose waits for it.
sim_mutant_of(64 include/gpunet/dev/impl/borrow.h
	"	w = gnet_dev_add(&gnet__slot(net, fd)->life, 1);"
	"	w = gnet_dev_add(&gnet__slot(net, fd)->life, @M@ ? 0 : 1);\n	sim_stall();")
sim_mutant_of(64 include/gpunet/dev/impl/borrow.h
	"		gnet__leave(sk);\n		return;\n	}\n	/* B5"
	"		if (!@M@)\n			gnet__leave(sk);\n		return;\n	}\n	/* B5")
sim_mutant_of(64 include/gpunet/dev/impl/borrow.h
	"0 - one - 1)"
	"0 - one - (@M@ ? 0 : 1))")
# B5: the last borrower ends the socket.
sim_mutant_of(65 include/gpunet/dev/impl/borrow.h
	"== GNET_L_LENT)\n		gnet__close_finish(net, fd, sk);"
	"== GNET_L_LENT && !@M@)\n		gnet__close_finish(net, fd, sk);")
# B5: gclose does not wait for borrows.
sim_mutant_of(66 include/gpunet/dev/impl/socket.h
	"& (GNET_L_HELD | GNET_L_BORROWED)) == GNET_L_HELD;"
	"& (GNET_L_HELD | (@M@ ? 0 : GNET_L_BORROWED))) == GNET_L_HELD;")

# ---- datagrams

# D1: positions are multiples of 16.
sim_mutant_of(70 src/stream/dgram.c
	"return (int64_t)(front + round16(h.stored));"
	"return (int64_t)(front + (@M@ ? h.stored : round16(h.stored)));")
# D2: a record is in the line only if it is alone.
sim_mutant_of(71 src/stream/dgram.c
	"if (!alone || n > GNET_INLINE_MAX) {"
	"if ((!@M@ && !alone) || n > GNET_INLINE_MAX) {")
# D3: a datagram is taken out of the host's socket only if there is room for all of it.
sim_mutant_of(72 src/stream/dgram.c
	"	return room >= front && room - front >= round16((uint64_t)n);"
	"	return room >= front && (@M@ || room - front >= round16((uint64_t)n));")

# D6: of a full queue at the other end no event tells.
sim_mutant_of(73 src/stream/dgram.c
	"		/* The peer's queue is full (UNIX) or the device's (ENOBUFS): of neither an event tells. */\n		stream_later(s);"
	"		if (!@M@)\n			stream_later(s);")

# A call for a datagram holds its side to its end: another block's waits (dgmix.c).
sim_mutant_of(74 include/gpunet/dev/impl/sock.h
	"		while (old & GNET_L_HELD && gnet__alive(old, fd)) {"
	"		while (old & GNET_L_HELD && !(@M@ && w->dgram) && gnet__alive(old, fd)) {")

# ---- gpoll's limit: it is kept, and not over early

sim_mutant_of(75 include/gpunet/dev/impl/poll.h
	"	if (until != never && gnet_time_ns() >= until)"
	"	if (!@M@ && until != never && gnet_time_ns() >= until)")
sim_mutant_of(76 include/gpunet/dev/impl/poll.h
	"until = gnet_time_ns() + (uint64_t)timeout_ns;"
	"until = gnet_time_ns() + (uint64_t)timeout_ns / (@M@ ? 2 : 1);")

# ---- how things end (ends.c)

# Whoever has found a name wakes the thread that answers.
sim_mutant_of(85 src/socket/resolve.c
	"	proxy_wake(proxy_thread(r->proxy, q->thread));"
	"	if (!@M@)\n		proxy_wake(proxy_thread(r->proxy, q->thread));")
# N3: a close whose time was over says so.
sim_mutant_of(86 src/stream/tx.c
	"	s->late = lost && !s->reset;"
	"	s->late = !@M@ && lost && !s->reset;")
# E2: an error is told once.
sim_mutant_of(87 include/gpunet/dev/impl/sock.h
	"uint64_t old = gnet_dev_cas(&sk->err_seen, seen, number);"
	"uint64_t old = @M@ ? seen : gnet_dev_cas(&sk->err_seen, seen, number);")

# ---- positions whose copies wrap (sim_first)

# R4: a tail is the position at or after head that a line's 41 bits mean.
sim_mutant_of(90 include/gpunet/dev/impl/stream.h
	"return head + (((cell0 >> GNET_LINE_TAIL_SHIFT) - head) & GNET_LINE_TAIL_MASK);"
	"return @M@ ? (head & ~GNET_LINE_TAIL_MASK) | cell0 >> GNET_LINE_TAIL_SHIFT : head + (((cell0 >> GNET_LINE_TAIL_SHIFT) - head) & GNET_LINE_TAIL_MASK);")
# K2: the upper half of a word wraps with its position.
sim_mutant_of(91 include/gpunet/dev/impl/sock.h
	"	uint64_t moved = (is - (word >> GNET_L_AT_SHIFT)) << GNET_L_AT_SHIFT;"
	"	uint64_t moved = (@M@ && (uint32_t)is < word >> GNET_L_AT_SHIFT ? 0 : is - (word >> GNET_L_AT_SHIFT)) << GNET_L_AT_SHIFT;")

# ---- options

sim_mutant_of(77 include/gpunet/dev/impl/option.h
	"return name == GNET_SO_SNDTIMEO ? &sk->snd_limit : 0;"
	"return name == GNET_SO_SNDTIMEO ? @M@ ? &sk->rcv_limit : &sk->snd_limit : 0;")
sim_mutant_of(78 include/gpunet/dev/impl/option.h
	"(uint32_t)value < len ? (uint32_t)value : len);"
	"@M@ ? 0 : (uint32_t)value < len ? (uint32_t)value : len);")

# ---- waits that nap, as on a GPU (sim_naps); the order in H2 is in the model only

sim_change(include/gpunet/dev/impl/bus.h
	"	if (gpunet_cpu_wait(deadline))"
	"	if (sim_naps ? (__nanosleep(5000), 0) : gpunet_cpu_wait(deadline))")
sim_change(include/gpunet/dev/impl/nap.h
	"#ifdef __CUDACC__"
	"#if 1")
sim_change(include/gpunet/dev/impl/nap.h
	"#define GNET__NAP_NS 300u"
	"#define GNET__NAP_NS 10000u")
sim_change(include/gpunet/dev/impl/nap.h
	"#define GNET__BELT_NS 1000000u"
	"#define GNET__BELT_NS sim_belt")
sim_change(include/gpunet/dev/impl/stream.h
	"#else\n	(void)s;\n	(void)k;\n	return 0;\n#endif"
	"#endif\n	return sim_naps && !k->avail && !s->acquire ? 3 : 0;")
sim_change(include/gpunet/dev/impl/sock.h
	"#ifdef __CUDACC__\n/* Sleeps until a hint"
	"#if 1\n/* Sleeps until a hint")
sim_change(include/gpunet/dev/impl/sock.h
	"#ifdef __CUDACC__\n	if (w->told) {"
	"#if 1\n	if (sim_naps && w->told) {")
sim_change(include/gpunet/dev/impl/poll.h
	"#ifdef __CUDACC__\n/*\n * All: sleeps"
	"#if 1\n/*\n * All: sleeps")
sim_change(include/gpunet/dev/impl/poll.h
	"		if (asked) {\n#ifdef __CUDACC__\n"
	"		if (asked && sim_naps) {\n")
sim_change(include/gpunet/dev/impl/poll.h
	"#else\n			(void)hints; /* the wait below ends when something is stored */\n#endif\n		} else if (++turns"
	"		} else if (!asked && ++turns")
# H1: a wait that has asked looks once more.
sim_mutant_of(80 include/gpunet/dev/impl/sock.h
	"		gnet__ask_hint(net, fd, side, pos);\n"
	"		gnet__ask_hint(net, fd, side, pos);\n		if (@M@ && sim_naps) {\n			w->told = 0;\n			return gnet__nap(net, fd, word, w);\n		}\n")
# H2: gpoll asks beside the calls.
sim_mutant_of(82 src/stream/tx.c
	"if ((__atomic_load_n(mine, __ATOMIC_RELAXED) | __atomic_load_n(poll, __ATOMIC_RELAXED)) &&"
	"if ((__atomic_load_n(mine, __ATOMIC_RELAXED) | (@M@ ? 0 : __atomic_load_n(poll, __ATOMIC_RELAXED))) &&")
# H4: a hint is passed on to those that nap.
sim_mutant_of(84 include/gpunet/dev/impl/nap.h
	"		gnet_dev_add_relaxed(&net->hints[c >> 8], GNET_HINT_ONE);"
	"		if (!@M@)\n			gnet_dev_add_relaxed(&net->hints[c >> 8], GNET_HINT_ONE);")
# H6: a gpoll that ends leaves what others ask for; the rest of the rule is in the model only.
sim_mutant_of(88 include/gpunet/dev/impl/nap.h
	"	if (GNET_HINT_POLLS(was) != 1)"
	"	if (!@M@ && GNET_HINT_POLLS(was) != 1)")
sim_mutant_of(88 include/gpunet/dev/impl/nap.h
	"	if (GNET_HINT_POLLS(gnet_dev_load(word)))"
	"	if (!@M@ && GNET_HINT_POLLS(gnet_dev_load(word)))")

# ---- positions that are large (sim_first): what a kernel and the proxy call 0 elsewhere, of sockets and of a listener's ring

sim_change(include/gpunet/dev/impl/sock.h
	"	gnet_dev_store(&sk->rx_head, 0);"
	"	gnet_dev_store(&sk->rx_head, sim_first);")
sim_change(include/gpunet/dev/impl/sock.h
	"	gnet_dev_store(&sk->tx_tail, 0);\n	gnet_dev_store(&sk->tx_head, 0);"
	"	gnet_dev_store(&sk->tx_tail, sim_first);\n	gnet_dev_store(&sk->tx_head, sim_first);")
sim_change(include/gpunet/dev/impl/sock.h
	"	gnet_dev_store_release(&sk->rx, gen | state);\n	gnet_dev_store_release(&sk->tx, gen | state);"
	"	gnet_dev_store_release(&sk->rx, gen | state | sim_first << GNET_L_AT_SHIFT);\n	gnet_dev_store_release(&sk->tx, gen | state | sim_first << GNET_L_AT_SHIFT);")
sim_change(src/stream/tx.c
	"	s->rx_seg = s->tx_seg = -1;\n	s->tag_inline"
	"	s->rx_seg = s->tx_seg = -1;\n	s->rx_tail = s->tx_tail = s->tx_head = sim_first;\n	s->cell0 = (sim_first & GNET_LINE_TAIL_MASK) << GNET_LINE_TAIL_SHIFT;\n	s->tag_inline")
sim_change(src/stream/tx.c
	"		__atomic_store_n(&bus->line.cell[i], 0, __ATOMIC_RELAXED);"
	"		__atomic_store_n(&bus->line.cell[i], i ? 0 : s->cell0, __ATOMIC_RELAXED);")
sim_change(src/stream/tx.c
	"	__atomic_store_n(&bus->txw, 0, __ATOMIC_RELAXED);\n	__atomic_store_n(&bus->head, 0, __ATOMIC_RELAXED);\n	__atomic_store_n(&bus->tx_tail, 0, __ATOMIC_RELAXED);"
	"	__atomic_store_n(&bus->txw, sim_first & GNET_TXW_POS_MASK, __ATOMIC_RELAXED);\n	__atomic_store_n(&bus->head, sim_first, __ATOMIC_RELAXED);\n	__atomic_store_n(&bus->tx_tail, sim_first, __ATOMIC_RELAXED);")
sim_change(src/socket/table.c
	"	s->accepted = 0;"
	"	s->accepted = sim_first;")

# ---- a device like a GPU: its kernels cannot wake a proxy thread (sim_gpu_like)

sim_change(src/platform/cpu/dev.c
	"__atomic_store_n(&dev->kick, kick, __ATOMIC_RELEASE);\n	return 1;"
	"__atomic_store_n(&dev->kick, sim_gpu_like ? NULL : kick, __ATOMIC_RELEASE);\n	return !sim_gpu_like;")

list(REMOVE_DUPLICATES sim_mutants)
# Those that take many seeds begin a little before the one that found them last (mutants.sh).
foreach(at 2:4440 3:240 4:240 20:60 22:230 23:520 42:370 51:370 52:165 54:1010 55:1205 57:24980 58:8800 63:110 64:1735
	66:495 72:305 73:885 80:770 82:60 84:60 85:90 86:45 88:7538)
	string(REGEX REPLACE ":.*" "" number ${at})
	list(TRANSFORM sim_mutants REPLACE "^${number}$" ${at})
endforeach()

# What was a copy and is none any more must not hide the source.
file(GLOB_RECURSE stale RELATIVE ${sim_copy} ${sim_copy}/*)
list(REMOVE_ITEM stale ${sim_mutated})
list(TRANSFORM stale PREPEND ${sim_copy}/)
if(stale)
	file(REMOVE ${stale})
endif()
foreach(file IN LISTS sim_mutated)
	string(MAKE_C_IDENTIFIER ${file} name)
	file(CONFIGURE OUTPUT ${sim_copy}/${file} @ONLY
		CONTENT "extern int sim_mutant, sim_gpu_like, sim_late, sim_naps;\nextern unsigned long sim_belt, sim_first;\nvoid sim_stall(void);\nvoid sim_in_life(int fd, unsigned long life);\nvoid sim_goes_on(unsigned long was, unsigned long head);\n#line 1 \"${file}\"\n@sim_text_${name}@")
endforeach()
