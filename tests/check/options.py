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

MEMBER = re.compile(r"(?:const )?\w+(?: \*| )(\w+);\s*/\*\s*(.*?)\s*\*/", re.S)
COMMENT = re.compile(r"(GPUNET_\w+): (.*) \[(.*)\]$")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LONG_OPTION = re.compile(r'\{ "([a-z-]+)", (?:no|required)_argument,')


def header_options(text):
    """[(member, variable, meaning, default)] of struct gpunet_options."""
    body = re.search(r"^struct gpunet_options \{\n(.*?)^\};", text, re.S | re.M)
    if not body:
        raise ValueError("there is no struct gpunet_options")
    options = []
    for member, comment in MEMBER.findall(body[1]):
        comment = " ".join(comment.split())
        if member == "size":
            continue
        match = COMMENT.match(comment)
        if not match:
            raise ValueError(f"{member}: the comment is not 'GPUNET_NAME: meaning [default]': {comment}")
        options.append((member, match[1], match[2], match[3]))
    # A member without a comment would be missed: count them in another way.
    members = re.findall(r"^\s*[a-z][\w \*]*?(\w+);", body[1], re.M)
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


def check_library(options, text):
    """Each variable's name stands in the library's table, and no other one."""
    have = set(re.findall(r'"(GPUNET_\w+)"', text))
    want = {variable for _, variable, _, _ in options}
    errors = [f"src/socket/options.c: {name} is missing" for name in sorted(want - have)]
    errors += [f"src/socket/options.c: {name} is not in gpunet.h" for name in sorted(have - want)]
    return errors


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
    if os.path.exists(os.path.join(root, "src/socket/options.c")):
        errors += check_library(options, read(root, "src/socket/options.c"))
    else:
        errors.append("src/socket/options.c is not there")
    for name in ("echo", "cat", "doctor", "info"):
        errors += check_command(name, read(root, f"tools/{name}.c"), read(root, f"man/gpunet-{name}.1"))
    return errors, len(options)


def self_test():
    header = ("struct gpunet_options {\n\tsize_t size; /* sizeof */\n"
              "\tunsigned calls; /* GPUNET_CALLS: commands, 64-65536 [256] */\n"
              "\tint spin_us;    /* GPUNET_SPIN_US: time; -1: it\n\t\t\t   never sleeps [1] */\n};\n")
    options = header_options(header)
    wrong = 0
    cases = [
        (options, [("calls", "GPUNET_CALLS", "commands, 64-65536", "256"),
                   ("spin_us", "GPUNET_SPIN_US", "time; -1: it never sleeps", "1")]),
        (limits("one ring, 16 KiB-64 MiB"), (16 << 10, 64 << 20)),
        (limits("no numbers"), None),
        (check_library(options, '"GPUNET_CALLS" "GPUNET_SPIN_US"'), []),
        (len(check_library(options, '"GPUNET_CALLS" "GPUNET_OTHER"')), 2),
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
                header.replace("/* GPUNET_CALLS: commands, 64-65536 [256] */", "")):
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
