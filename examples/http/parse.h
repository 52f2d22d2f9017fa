/* SPDX-License-Identifier: BSD-3-Clause */
/* Device code: reads the head of an HTTP/1.x request. One thread runs it. No memory is allocated, nothing is copied. */
#ifndef EXAMPLES_HTTP_PARSE_H
#define EXAMPLES_HTTP_PARSE_H

#include <gpunet/dev/device.h>

struct http_request {
	int status;     /* 200, or the error that this request is; 0: empty lines, no answer */
	int head;       /* HEAD: the answer has no body */
	int keep_alive; /* the connection goes on after the answer */
	int page;       /* which page: enum http_page */
};

enum http_page { HTTP_PAGE_NONE, HTTP_PAGE_ROOT, HTTP_PAGE_HELLO };

struct http_text {
	const char *at, *end;
};

GNET_DEV char http_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

/* `word` is in lower case; case does not count. */
GNET_DEV int http_same(struct http_text t, const char *word)
{
	for (; t.at < t.end && *word; t.at++, word++) {
		if (http_lower(*t.at) != *word)
			return 0;
	}
	return t.at == t.end && !*word;
}

GNET_DEV int http_equal(struct http_text t, const char *word)
{
	for (; t.at < t.end && *word; t.at++, word++) {
		if (*t.at != *word)
			return 0;
	}
	return t.at == t.end && !*word;
}

/* What stands before the next `mark`, which is skipped; all of it if there is none. */
GNET_DEV struct http_text http_until(struct http_text *t, char mark)
{
	struct http_text part = *t;

	while (t->at < t->end && *t->at != mark)
		t->at++;
	part.end = t->at;
	if (t->at < t->end)
		t->at++;
	return part;
}

GNET_DEV struct http_text http_trim(struct http_text t)
{
	while (t.at < t.end && (*t.at == ' ' || *t.at == '\t'))
		t.at++;
	while (t.at < t.end && (t.end[-1] == ' ' || t.end[-1] == '\t'))
		t.end--;
	return t;
}

/* A line without its CR LF; a line that ends otherwise, or has control characters, is wrong: *ok = 0. */
GNET_DEV struct http_text http_line(struct http_text *t, int *ok)
{
	struct http_text line = http_until(t, '\n');
	const char *p;

	if (line.at == line.end || line.end[-1] != '\r')
		*ok = 0;
	else
		line.end--;
	for (p = line.at; p < line.end; p++) {
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
			*ok = 0;
	}
	return line;
}

GNET_DEV int http_page_of(struct http_text target)
{
	struct http_text path = http_until(&target, '?'), scheme = path;

	/* http://host/path is the same as /path. */
	scheme.end = path.end - path.at > 7 ? path.at + 7 : path.at;
	if (http_same(scheme, "http://")) {
		path.at += 7;
		while (path.at < path.end && *path.at != '/')
			path.at++;
	}
	if (http_equal(path, "/") || http_equal(path, "/index.html"))
		return HTTP_PAGE_ROOT;
	return http_equal(path, "/hello") ? HTTP_PAGE_HELLO : HTTP_PAGE_NONE;
}

/* GET /path HTTP/1.1 */
GNET_DEV void http_request_line(struct http_request *r, struct http_text line, int *minor)
{
	struct http_text method = http_until(&line, ' ');
	struct http_text target = http_until(&line, ' ');

	if (method.at == method.end || target.at == target.end || line.end - line.at != 8) {
		r->status = 400;
		return;
	}
	*minor = line.at[7] - '0';
	line.end -= 1;
	if (!http_equal(line, "HTTP/1.") || *minor < 0 || *minor > 9) {
		r->status = 505;
		return;
	}
	r->head = http_equal(method, "HEAD");
	r->page = http_page_of(target);
	if (!r->head && !http_equal(method, "GET"))
		r->status = 405;
	else if (r->page == HTTP_PAGE_NONE)
		r->status = 404;
}

struct http_fields {
	int hosts, body, close, keep_alive;
};

/* Connection: a list of words */
GNET_DEV void http_connection(struct http_fields *f, struct http_text value)
{
	while (value.at < value.end) {
		struct http_text word = http_trim(http_until(&value, ','));

		f->close |= http_same(word, "close");
		f->keep_alive |= http_same(word, "keep-alive");
	}
}

/* Name: value; 0 if it is no such line. */
GNET_DEV int http_field(struct http_fields *f, struct http_text line)
{
	struct http_text name = http_until(&line, ':');
	struct http_text value = http_trim(line);

	/* No colon, no name, or a name with space at an end, which is also how a continued line begins. */
	if (name.end == line.end || name.at == name.end || http_trim(name).at != name.at ||
	    http_trim(name).end != name.end)
		return 0;
	if (http_same(name, "host"))
		f->hosts++;
	else if (http_same(name, "connection"))
		http_connection(f, value);
	else if (http_same(name, "transfer-encoding"))
		f->body = 1;
	else if (http_same(name, "content-length"))
		f->body |= !http_equal(value, "0");
	return 1;
}

/* `text` is a request's head, from its first line to the empty line; empty: there was no room for all of it. */
GNET_DEV void http_parse(struct http_request *r, struct http_text text)
{
	struct http_fields f = { 0, 0, 0, 0 };
	int minor = 0, ok = 1;

	r->status = text.at < text.end ? 200 : 431;
	r->head = 0;
	r->keep_alive = 0;
	r->page = HTTP_PAGE_NONE;
	if (r->status == 431)
		return;
	/* A client may send empty lines before a request; nothing but those is no request. */
	while (text.end - text.at >= 2 && text.at[0] == '\r' && text.at[1] == '\n')
		text.at += 2;
	if (text.at == text.end) {
		r->status = 0;
		r->keep_alive = 1;
		return;
	}
	http_request_line(r, http_line(&text, &ok), &minor);
	while (ok && text.at < text.end) {
		struct http_text line = http_line(&text, &ok);

		if (line.at == line.end)
			break;
		ok &= http_field(&f, line);
	}
	if ((!ok || (minor >= 1 && f.hosts != 1)) && r->status != 505)
		r->status = 400;
	/* We read no body, so what follows one cannot be found; nor what follows nonsense. */
	r->keep_alive = (minor >= 1 ? !f.close : f.keep_alive) && !f.body && r->status <= 404 &&
			r->status != 400;
}

#endif
