#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The libraries define no global symbol but gpunet_…, and all of those are declared publicly.

usage: symbols.py ROOT libgpunet.so libgpunet.a | symbols.py --self-test other.so
"""

import os
import re
import subprocess
import sys


def defined(library):
    dynamic = ["-D"] if ".so" in os.path.basename(library) else []
    run = subprocess.run(["nm", "-g", "--defined-only", *dynamic, library],
                         stdout=subprocess.PIPE, text=True, check=True)
    return {match[1].split("@")[0] for match in
            re.finditer(r"^[0-9a-f]* [A-TV-Za-z] (\S+)$", run.stdout, re.M)}


def declared(root):
    text = ""
    for folder, _, names in os.walk(os.path.join(root, "include")):
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                text += stream.read()
    return set(re.findall(r"\bgpunet_\w+", text))


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--self-test":
        # A library that is not ours must be rejected.
        sys.exit(0 if any(not name.startswith("gpunet_") for name in defined(sys.argv[2])) else 1)
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    public, errors, names = declared(sys.argv[1]), [], set()
    for library in sys.argv[2:]:
        names = defined(library)
        errors += [f"{library}: exports {name}" for name in names if not name.startswith("gpunet_")]
        errors += [f"{library}: exports {name}, which no public header declares"
                   for name in names if name.startswith("gpunet_") and name not in public]
        if not names:
            errors.append(f"{library}: exports nothing")
    if not errors and defined(sys.argv[2]) != defined(sys.argv[3]):
        errors.append("shared and static library differ: "
                      f"{defined(sys.argv[2]) ^ defined(sys.argv[3])}")
    print("\n".join(sorted(errors) + [f"symbols: {len(names)} exported, {len(errors)} errors"]))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
