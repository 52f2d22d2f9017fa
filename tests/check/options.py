#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One table of options: the comments of struct gpunet_options are its source.

docs/options.md must hold the table that is made of them, man/gpunet_open.3 must name each member and its
environment variable, and the library's own table (src/socket/options.c) must have the same variables with
the same limits. The tool's man pages must have the options that the tool's sources take.

usage: options.py ROOT | options.py --print ROOT | options.py --self-test
"""

import os
import re
import sys

MEMBER = re.compile(r"/\*\s*(.*?)\s*\*/\s*[\w ]+?[\s*]+(\w+);", re.S)
COMMENT = re.compile(r"(GPUNET_\w+): (.*) \[(.*)\]$")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
TEXTS = ("GPUNET_DEVICE", "GPUNET_VERBS", "GPUNET_ENGINE", "GPUNET_RDMA_MEMORY")  # options that are no numbers have no limits
LONG_OPTION = re.compile(r'\{ "([a-z-]+)", (?:no|required)_argument,')


def header_options(text):
    """[(member, variable, meaning, default)] of struct gpunet_options."""
    body = re.search(r"^struct gpunet_options \{\n(.*?)^\};", text, re.S | re.M)
    if not body:
        raise ValueError("there is no struct gpunet_options")
    options = []
    for comment, member in MEMBER.findall(body[1]):
        comment = " ".join(re.sub(r"^\s*\*", "", line) for line in comment.split("\n"))
        comment = " ".join(comment.split())
        if member == "size":
            continue
        match = COMMENT.match(comment)
        if not match:
            raise ValueError(f"{member}: the comment is not 'GPUNET_NAME: meaning [default]': {comment}")
        options.append((member, match[1], match[2], match[3]))
    # A member without a comment would be missed: count them in another way.
    members = re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", body[1], flags=re.S))
    if len(members) - 1 != len(options):
        raise ValueError(f"{len(members) - 1} members, {len(options)} with a comment")
    return options


def table(options):
    lines = ["| option | environment | meaning, limits | default |", "|---|---|---|---|"]
    for member, variable, meaning, default in options:
        lines.append(f"| `{member}` | `{variable}` | {meaning} | {default} |")
    return "\n".join(lines) + "\n"


def limits(meaning):
    """(least, most) in "..., 64 KiB-64 GiB", else None."""
    match = re.search(r"(\d+)( [KMG]iB)?-(\d+)( [KMG]iB)?$", meaning)
    if not match:
        return None
    return tuple(int(n) * UNITS.get((unit or "").strip(), 1)
                 for n, unit in ((match[1], match[2]), (match[3], match[4])))


def check_man(options, page):
    return [f"man/gpunet_open.3: {member} ({variable}) is missing" for member, variable, _, _ in options
            if not re.search(rf"^\.It Va {member} Pq Ev {variable}$", page, re.M)]


def number(text):
    """16384 or 64 MiB, else None."""
    match = re.fullmatch(r"(-?\d+)(?: ([KMG]iB))?", text)
    return int(match[1]) * UNITS.get(match[2], 1) if match else None


def constants(text):
    """Names that a #define gives a constant expression."""
    return dict(re.findall(r"^#define (GNET_\w+) ([^\n/]*?)[ \t]*(?:/\*.*)?$", text, re.M))


def value(expression, names):
    """A constant expression of numbers, shifts and GNET_ names."""
    expression = expression.replace("INT64_MAX", str((1 << 63) - 1))
    for _ in range(4):
        expression = re.sub(r"\bGNET_\w+", lambda m: f"({names[m[0]]})", expression)
    expression = re.sub(r"\bU?INT64_C\((\d+)\)", r"\1", expression)
    expression = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", expression)
    if not re.fullmatch(r"[\d\s()<+*-]+", expression):
        raise ValueError(f"not a constant expression: {expression}")
    return eval(expression)  # noqa: S307: digits and operators only


def check_library(options, text, names):
    """The library's table has each variable, no other one, and the same limits and defaults."""
    errors = []
    rows = {row[1]: row for row in re.findall(
        r'OPT\((\w+), "(GPUNET_\w+)", \w+, ([^,]+), ([^,]+), ([^,]+), (true|false)\)', " ".join(text.split()))}
    have = set(re.findall(r'"(GPUNET_\w+)"', text))
    want = {variable for _, variable, _, _ in options}
    errors += [f"{name} is missing" for name in sorted(want - have)]
    errors += [f"{name} is not in gpunet.h" for name in sorted(have - want)]
    for member, variable, meaning, default in options:
        if variable not in rows:
            if variable not in TEXTS and variable in have:
                errors.append(f"{variable} has no row in the table")
            continue
        row = rows[variable]
        least, most, preset = (value(text, names) for text in row[2:5])
        if row[0] != member:
            errors.append(f"{variable} sets {row[0]}, not {member}")
        if limits(meaning) and limits(meaning) != (least, most):
            errors.append(f"{variable}: limits {least}-{most}, gpunet.h has {limits(meaning)}")
        if number(default) is not None and number(default) != preset:
            errors.append(f"{variable}: default {preset}, gpunet.h has {default}")
        if ("power of two" in meaning) != (row[5] == "true"):
            errors.append(f"{variable}: power of two or not? gpunet.h and the table differ")
    return [f"src/socket/options.c: {error}" for error in errors]


def check_command(name, source, page):
    options = [o for o in LONG_OPTION.findall(source) if o != "help"]
    return [f"man/gpunet-{name}.1: --{o} is missing" for o in options
            if not re.search(rf"\bFl -{o}\b", page)]


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as stream:
        return stream.read()


def check(root):
    options = header_options(read(root, "include/gpunet/gpunet.h"))
    errors = []
    if table(options) not in read(root, "docs/options.md"):
        errors.append("docs/options.md: the table is not that of gpunet.h (options.py --print prints it)")
    errors += check_man(options, read(root, "man/gpunet_open.3"))
    errors += check_library(options, read(root, "src/socket/options.c"),
                            constants(read(root, "include/gpunet/dev/abi/bus.h")))
    for name, source in (("echo", "echo"), ("cat", "cat"), ("doctor", "json"), ("info", "json")):
        errors += check_command(name, read(root, f"tools/{source}.c"), read(root, f"man/gpunet-{name}.1"))
    return errors, len(options)


def self_test():
    header = ("struct gpunet_options {\n\t/* sizeof */\n\tsize_t size;\n"
              "\t/* GPUNET_CALLS: commands, 64-1048575 [256] */\n\tunsigned calls;\n"
              "\t/*\n\t * GPUNET_SPIN_US: time; -1: it\n\t * never sleeps [1]\n\t */\n\tint spin_us;\n};\n")
    options = header_options(header)
    names = constants("#define GNET_BITS 20u\n#define GNET_MANY (1u << GNET_BITS) /* all */\n")
    rows = ('OPT(calls, "GPUNET_CALLS", UINT, 64, GNET_MANY - 1, INT64_C(256), false)\n'
            'OPT(spin_us, "GPUNET_SPIN_US", INT, -1, 1 << 30, 1, false)\n')
    wrong = 0
    cases = [
        (options, [("calls", "GPUNET_CALLS", "commands, 64-1048575", "256"),
                   ("spin_us", "GPUNET_SPIN_US", "time; -1: it never sleeps", "1")]),
        (limits("one ring, 16 KiB-64 MiB"), (16 << 10, 64 << 20)),
        (limits("no numbers"), None),
        (check_library(options, rows, names), []),
        (len(check_library(options, rows + '"GPUNET_OTHER"', names)), 1),
        (len(check_library(options, rows.replace("GPUNET_SPIN_US", "GPUNET_SPIN"), names)), 2),
        (len(check_library(options, rows.replace("(256)", "(255)"), names)), 1),
        (len(check_library(options, rows.replace("64,", "63,"), names)), 1),
        (len(check_library(options, rows.replace("- 1", "- 2"), names)), 1),
        (len(check_library(options, rows.replace("(256), false", "(256), true"), names)), 1),
        (len(check_library(options, rows.replace("OPT(calls", "OPT(call"), names)), 1),
        (number("64 MiB"), 64 << 20),
        (number("CPU device 1"), None),
        (check_man(options, ".It Va calls Pq Ev GPUNET_CALLS\n.It Va spin_us Pq Ev GPUNET_SPIN_US\n"), []),
        (len(check_man(options, ".It Va calls Pq Ev GPUNET_SPIN_US\n")), 2),
        (check_command("x", '{ "json", no_argument, NULL }', ".Op Fl -json\n"), []),
        (len(check_command("x", '{ "json", no_argument, NULL }', ".Op Fl -js\n")), 1),
    ]
    for got, want in cases:
        if got != want:
            print(f"self-test: {got!r}, expected {want!r}")
            wrong += 1
    for bad in ("struct other {\n};\n", header.replace(" [256]", ""),
                header.replace("/* GPUNET_CALLS: commands, 64-1048575 [256] */", "")):
        try:
            header_options(bad)
            print(f"self-test: accepted {bad!r}")
            wrong += 1
        except ValueError:
            pass
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test() else 0)
    if len(sys.argv) == 3 and sys.argv[1] == "--print":
        print(table(header_options(read(sys.argv[2], "include/gpunet/gpunet.h"))), end="")
        sys.exit(0)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    errors, count = check(sys.argv[1])
    for error in errors:
        print(error)
    print(f"options: {count} options, {len(errors)} errors")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
