/* SPDX-License-Identifier: BSD-3-Clause */
/* Doubly linked list with the links in the members. A link that is in no list points to itself. */
#ifndef GPUNET_BASE_LIST_H
#define GPUNET_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *prev, *next;
};

#define list_entry(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/* Takes a link out of its list; no harm if it is in none. */
static inline void list_del(struct list *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}

/* Appends a link that is in no list. */
static inline void list_add_tail(struct list *head, struct list *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

/* Moves all of `from` to the end of the empty list `to`. */
static inline void list_take(struct list *from, struct list *to)
{
	if (list_empty(from))
		return;
	to->next = from->next;
	to->prev = from->prev;
	to->next->prev = to;
	to->prev->next = to;
	list_init(from);
}

#endif
