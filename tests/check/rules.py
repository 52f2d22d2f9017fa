#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The caps and bans that a compiler does not know.

- a function warns at 60 lines and fails at 100, a file fails at 1,200 lines;
- src/ and include/ never end the process and never print: no exit, abort, printf, assert …;
- every source file begins with the SPDX line of BSD-3-Clause;
- no `volatile` in src/ and include/: it orders nothing.

usage: rules.py ROOT | rules.py --self-test
"""

import os
import re
import sys
import tempfile

WARN_FUNCTION, MAX_FUNCTION, MAX_FILE = 60, 100, 1200
SKIP_FOLDERS = re.compile(r"^(build.*|gpu-bundle.*|\.git|\.gl|\.whl|__pycache__|corpus)$")
C_FILE = (".c", ".h", ".cu", ".cuh")
OTHER_FILE = (".py", ".sh", ".cmake", ".pml")
OTHER_NAMES = ("CMakeLists.txt",)
SPDX = "SPDX-License-Identifier: BSD-3-Clause"

BANNED = re.compile(r"(?<![\w.>])(exit|_exit|_Exit|quick_exit|abort|assert|printf|vprintf|puts|"
                    r"putchar|perror|__builtin_trap|__builtin_abort|__trap)[ \t]*\(")
# volatile is right in inline assembly (__asm__ volatile) only.
VOLATILE = re.compile(r"(?<!asm )(?<!asm__ )\bvolatile\b")
TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(match):
    """Comments and strings become spaces; line numbers stay."""
    return re.sub(r"[^\n]", " ", match[0])


def files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not SKIP_FOLDERS.match(name))
        for name in sorted(names):
            if name.endswith(C_FILE + OTHER_FILE) or name in OTHER_NAMES:
                yield os.path.relpath(os.path.join(folder, name), root)


def function_lengths(code):
    """(first line, lines) of each body: in our layout its braces stand alone in column one."""
    start = None
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{" and start is None:
            start = number
        elif line.startswith("}") and start is not None:
            # The signature counts: back to the line after the last blank one or closing brace.
            first = start
            while first > 1 and lines[first - 2].strip() and lines[first - 2][0] not in "}#;":
                first -= 1
            yield first, number - first + 1
            start = None


def check_c(path, text, errors, warnings):
    code = TOKENS.sub(blank, text)
    if code.count("\n") > MAX_FILE:
        errors.append(f"{path}: {code.count(chr(10))} lines, at most {MAX_FILE} are allowed")
    for first, length in function_lengths(code):
        if length > MAX_FUNCTION:
            errors.append(f"{path}:{first}: a function of {length} lines, at most {MAX_FUNCTION}")
        elif length > WARN_FUNCTION:
            warnings.append(f"{path}:{first}: warning: a function of {length} lines")
    if not path.startswith(("src/", "include/")):
        return
    for number, line in enumerate(code.split("\n"), 1):
        for match in BANNED.finditer(line):
            errors.append(f"{path}:{number}: {match[1]}() in a library")
        if VOLATILE.search(line):
            errors.append(f"{path}:{number}: volatile orders nothing, see dev/order.h")


def check(root):
    errors, warnings, count = [], [], 0
    for path in files(root):
        count += 1
        with open(os.path.join(root, path), encoding="utf-8") as stream:
            text = stream.read()
        if not any(SPDX in line for line in text.split("\n")[:2]):
            errors.append(f"{path}: the first line is not '{SPDX}'")
        if path.endswith(C_FILE):
            check_c(path, text, errors, warnings)
    return errors, warnings, count


def self_test():
    spdx = f"/* {SPDX} */\n"

    def body(lines):
        return spdx + "\nint f(void)\n{\n" + "\tg();\n" * (lines - 3) + "}\n"

    cases = [
        ("src/a.c", spdx + "void f(void)\n{\n\texit(1);\n}\n", 1, 0),
        ("src/a.c", spdx + "/* exit(1) */ const char *s = \"abort()\";\n", 0, 0),
        ("src/a.c", spdx + "void f(void)\n{\n\tnet->abort(net);\n\tgpunet_abort(n);\n}\n", 0, 0),
        ("include/a.h", spdx + "static void f(void)\n{\n\tassert (1);\n\tprintf(\"\");\n}\n", 2, 0),
        ("tools/a.c", spdx + "void f(void)\n{\n\tprintf(\"\");\n}\n", 0, 0),
        ("src/a.c", spdx + "static volatile int x;\n", 1, 0),
        ("src/a.c", spdx + "void f(void)\n{\n\t__asm__ volatile(\"pause\");\n}\n", 0, 0),
        ("src/a.c", "int x;\n", 1, 0),
        ("tests/run.py", f"#!/usr/bin/env python3\n# {SPDX}\n", 0, 0),
        ("tests/run.py", "#!/usr/bin/env python3\n", 1, 0),
        ("build-x/a.c", "int x;\n", 0, 0),
        ("src/a.c", body(60), 0, 0), ("src/a.c", body(61), 0, 1), ("src/a.c", body(101), 1, 0),
        ("src/a.c", spdx + "int x;\n" * 1200, 1, 0),
    ]
    wrong = 0
    for path, text, want_errors, want_warnings in cases:
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.dirname(os.path.join(root, path)))
            with open(os.path.join(root, path), "w", encoding="utf-8") as out:
                out.write(text)
            errors, warnings, _ = check(root)
            if (len(errors), len(warnings)) != (want_errors, want_warnings):
                print(f"self-test: {text[:200]!r}: {errors} {warnings}")
                wrong += 1
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        sys.exit(1 if self_test() else 0)
    errors, warnings, count = check(sys.argv[1])
    for line in warnings + errors:
        print(line)
    print(f"rules: {count} files, {len(errors)} errors, {len(warnings)} warnings")
    sys.exit(1 if errors or not count else 0)


if __name__ == "__main__":
    main()
