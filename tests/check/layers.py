#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fails on an include that goes up: the arrows of the design, applied to every #include.

usage: layers.py ROOT | layers.py --self-test
"""

import os
import re
import sys
import tempfile

# What a layer may include besides itself and <gpunet/…>. socket/ sits on top; the proxy knows no
# protocol, so upper layers may include it and it includes none of them.
MAY_INCLUDE = {
    "base": [],
    "wire": ["base"],
    "platform": ["base"],
    "proxy": ["platform", "wire", "base"],
    "rnic": ["platform", "wire", "base"],
    "verbs": ["rnic", "wire", "base"],
    "channel": ["verbs", "proxy", "platform", "wire", "base"],
    "stream": ["channel", "proxy", "platform", "wire", "base"],
    "socket": ["stream", "channel", "proxy", "platform", "wire", "base"],
}

# A folder below one of these is one of several siblings (transports, devices) that do not know
# each other.
SIBLINGS = ("channel", "platform", "verbs")

OUTSIDE = ("tools", "examples", "bench")
SUFFIXES = (".c", ".h", ".cu", ".cuh", ".inc")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]')


def source_files(root):
    for top in ("src", "include") + OUTSIDE:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def resolve(root, path, quote, target):
    """The project file that an include means, relative to root, or None for a system header."""
    places = [os.path.dirname(path)] if quote == '"' else []
    places += ["src", "include"]
    for place in places:
        found = os.path.normpath(os.path.join(place, target))
        if os.path.isfile(os.path.join(root, found)):
            return found
    return None


def layer_of(path):
    """src/channel/tcp/x.c -> (channel, tcp); src/base/x.c -> (base, None)"""
    parts = path.split("/")
    return parts[1], parts[2] if len(parts) > 3 else None


def objection(path, found):
    """Why `path` may not include `found`, or None."""
    if path.startswith(OUTSIDE):
        same = path.split("/")[0] == found.split("/")[0]
        if not same and not found.startswith("include/"):
            return "only <gpunet/…> is for programs outside the library"
        if "/dev/impl/" in found and not path.startswith("bench/"):
            return "dev/impl/ is not for direct inclusion"
        return None
    if path.startswith("include/"):
        if not found.startswith("include/"):
            return "a public header includes a private one"
        if path.startswith("include/gpunet/dev/abi/"):
            if not found.startswith("include/gpunet/dev/abi/"):
                return "dev/abi/ includes dev/abi/ only"
        elif path.startswith("include/gpunet/dev/"):
            if not found.startswith("include/gpunet/dev/") and found != "include/gpunet/api.h":
                return "dev/ includes dev/ only"
        return None
    if not found.startswith("src/"):
        return None if found.startswith("include/") else "the library includes itself only"
    layer, folder = layer_of(path)
    other, other_folder = layer_of(found)
    if layer == other:
        if layer in SIBLINGS and folder and other_folder and folder != other_folder:
            return f"{layer}/{folder} and {layer}/{other_folder} do not know each other"
        return None
    if layer not in MAY_INCLUDE:
        return f"layer {layer} is unknown to tests/check/layers.py"
    if other not in MAY_INCLUDE[layer]:
        return f"{layer} may include {', '.join(MAY_INCLUDE[layer]) or 'no other layer'}, not {other}"
    if other in SIBLINGS and other_folder:
        return f"{other}/{other_folder} is reached through {other}/*.h only"
    return None


def check(root):
    errors, count = [], 0
    for path in source_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                count += 1
                found = resolve(root, path, match[1], match[2])
                if not found:
                    if match[1] == '"' or match[2].startswith("gpunet/"):
                        errors.append(f"{path}:{number}: {match[2]}: no such file in the project")
                    continue
                reason = objection(path, found)
                if reason:
                    errors.append(f"{path}:{number}: includes {found}: {reason}")
    return errors, count


def self_test():
    """Each line below must be caught, each line of `good` must not."""
    files = ["src/base/log.h", "src/socket/sock.h", "src/stream/stream.h", "src/proxy/proxy.h",
             "src/channel/ops.h", "src/channel/tcp/tcp.h", "src/platform/platform.h",
             "src/platform/cpu/fiber.h", "include/gpunet/gpunet.h", "include/gpunet/dev/socket.h",
             "include/gpunet/dev/impl/socket.h", "include/gpunet/dev/abi/socket.h", "src/rnic/qp.h"]
    bad = [("src/base/a.c", '"socket/sock.h"'), ("src/stream/a.c", '"../socket/sock.h"'),
           ("src/proxy/a.c", '"channel/ops.h"'), ("src/channel/tcp/a.c", '"stream/stream.h"'),
           ("src/channel/tcp/a.c", '"rnic/qp.h"'), ("src/stream/a.c", '"channel/tcp/tcp.h"'),
           ("src/channel/shm/a.c", '"channel/tcp/tcp.h"'), ("src/new/a.c", '"base/log.h"'),
           ("src/proxy/a.c", '"platform/cpu/fiber.h"'), ("tools/a.c", '"../src/base/log.h"'),
           ("tools/a.c", "<gpunet/dev/impl/socket.h>"), ("examples/a.c", '"base/log.h"'),
           ("include/gpunet/dev/a.h", "<gpunet/gpunet.h>"), ("src/base/a.c", '"base/none.h"'),
           ("include/gpunet/a.h", '"../../src/base/log.h"'), ("tools/a.c", "<gpunet/none.h>"),
           ("include/gpunet/dev/abi/a.h", "<gpunet/dev/socket.h>")]
    good = [("src/socket/a.c", '"stream/stream.h"'), ("src/channel/tcp/a.c", '"tcp.h"'),
            ("src/channel/tcp/a.c", '"channel/ops.h"'), ("src/base/a.c", "<stdio.h>"),
            ("src/stream/a.c", "<gpunet/dev/abi/socket.h>"), ("tools/a.c", "<gpunet/gpunet.h>"),
            ("src/platform/cpu/a.c", '"platform/cpu/fiber.h"')]
    wrong = 0
    for cases, expected in ((bad, 1), (good, 0)):
        for path, target in cases:
            with tempfile.TemporaryDirectory() as root:
                for name in files + [path]:
                    os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                    with open(os.path.join(root, name), "w", encoding="utf-8") as out:
                        out.write(f"#include {target}\n" if name == path else "")
                errors, _ = check(root)
                if len(errors) != expected:
                    print(f"self-test: {path} includes {target}: {len(errors)} errors, "
                          f"expected {expected}: {errors}")
                    wrong += 1
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        sys.exit(1 if self_test() else 0)
    errors, count = check(sys.argv[1])
    for error in errors:
        print(error)
    print(f"layers: {count} includes, {len(errors)} errors")
    # Nothing read means a wrong ROOT, not a clean tree.
    sys.exit(1 if errors or not count else 0)


if __name__ == "__main__":
    main()
