#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A layout of include/gpunet/dev/abi/ does not change behind its number.

tests/check/abi.txt has GNET_ABI_VERSION and a hash of the headers' words, without comments and white space. Both change
together, or somebody says that it is the same ABI in other words.

usage: abi.py ROOT            checks
       abi.py --new ROOT      writes the record, of a new number
       abi.py --same ROOT     writes it, with the old number: no layout, value or rule is another
       abi.py --self-test
"""

import hashlib
import os
import re
import sys
import tempfile

FOLDER, RECORD = "include/gpunet/dev/abi", "tests/check/abi.txt"
NUMBER = re.compile(r"^#define GNET_ABI_VERSION (\d+)u$", re.M)
SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/|\\\n", re.S)
WORDS = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[\w.]+|\S')
COMMAND = "python3 tests/check/abi.py %s ."


def words(text):
    """The text's words, one after the other; a directive ends with its line."""
    kept = []
    for line in SKIPPED.sub(" ", text).split("\n"):
        kept += WORDS.findall(line)
        if line.lstrip().startswith("#"):
            kept.append("\n")
    return " ".join(kept)


def state(root):
    """(number, hash) of the headers."""
    folder = os.path.join(root, FOLDER)
    number, digest = None, hashlib.sha256()
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as stream:
            text = stream.read()
        match = NUMBER.search(text)
        if match:
            number = int(match[1])
            text = NUMBER.sub("", text)
        digest.update(f"{name}\n{words(text)}\n".encode())
    if number is None:
        raise ValueError(f"{FOLDER} defines no GNET_ABI_VERSION")
    return number, digest.hexdigest()[:32]


def record(root):
    with open(os.path.join(root, RECORD), encoding="utf-8") as stream:
        number, digest = stream.read().split()
    return int(number), digest


def put(root, path, text):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def problem(now, kept):
    """What is wrong, and what to do; None: nothing."""
    if now == kept:
        return None
    if now[0] == kept[0]:
        return (f"{FOLDER} has changed, and GNET_ABI_VERSION is {now[0]} still: a program that was compiled with the "
                f"headers of before would be taken for a new one. Give version.h the next number and run "
                f"`{COMMAND % '--new'}`; or, if no layout, value or rule is another, run `{COMMAND % '--same'}`.")
    return (f"GNET_ABI_VERSION is {now[0]}, and {RECORD} is of {kept[0]}: run `{COMMAND % '--new'}`.")


def write(root, same):
    """None, or why it must not be."""
    now, kept = state(root), record(root)
    if same != (now[0] == kept[0]) and now != kept:
        return problem(now, kept)
    put(root, RECORD, f"{now[0]} {now[1]}\n")
    return None


BEFORE = "/* one */\n#define GNET_ABI_VERSION 3u\n#define A 1 /* a\n * b */\nstruct s { int a; };\n"
# (headers of after, a word of what the check says: None: nothing)
CASES = (
    (BEFORE, None),
    (BEFORE.replace("one", "two").replace("{ int a; }", "{\n\tint a; // c\n}"), None),
    (BEFORE.replace("A 1", "A \\\n\t1"), None),
    (BEFORE.replace("int a", "int b"), "--same"),
    (BEFORE.replace("A 1", "A 2"), "--same"),
    (BEFORE.replace("A 1 ", "A\n1 "), "--same"),
    (BEFORE.replace("a;", "a; int b;").replace("3u", "4u"), "is of 3"),
    (BEFORE.replace("3u", "4u"), "is of 3"),
)


def case_fits(root, after, wanted):
    put(root, RECORD, "2 none\n")
    put(root, f"{FOLDER}/a.h", BEFORE)
    if write(root, False):
        return False
    put(root, f"{FOLDER}/a.h", after)
    said = problem(state(root), record(root))
    if said is None or wanted is None:
        return said is wanted
    # Of the two ways out one is open.
    is_same = "3u" in after
    return (wanted in said and write(root, not is_same) is not None and write(root, is_same) is None and
            problem(state(root), record(root)) is None)


def self_test():
    bad = 0
    for after, wanted in CASES:
        with tempfile.TemporaryDirectory() as root:
            if not case_fits(root, after, wanted):
                print(f"self-test: {after!r} is not seen as {wanted}")
                bad += 1
    print(f"self-test: {len(CASES)} cases, {bad} wrong")
    return bad


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test() else 0)
    if len(sys.argv) == 2:
        wrong = problem(state(sys.argv[1]), record(sys.argv[1]))
    elif len(sys.argv) == 3 and sys.argv[1] in ("--new", "--same"):
        wrong = write(sys.argv[2], sys.argv[1] == "--same")
    else:
        sys.exit(__doc__)
    sys.exit(f"abi: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
