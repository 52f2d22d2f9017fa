# SPDX-License-Identifier: BSD-3-Clause
"""What the test machines boot: a kernel and one file with the whole of their root.

Both come from Debian packages that apt fetches once. Nothing of them is installed on this machine, and nothing of
this machine gets into the root but the agent. The packages and the result stay in a cache folder.
"""

import fcntl
import glob
import hashlib
import io
import lzma
import os
import re
import shutil
import subprocess
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))

KERNEL = "linux-image-amd64"
PROGRAMS = """bash coreutils grep procps iproute2 netcat-openbsd tcpdump strace busybox-static
              ibverbs-utils ibverbs-providers rdmacm-utils perftest""".split()
APPLETS = "awk cmp dmesg head insmod mount rmmod sed setpriv setsid sleep tar umount".split()
# In the order in which they are loaded, each after what it depends on.
MODULES = """virtio_pci virtio_net crc32_generic crc32_pclmul sch_netem tun ib_uverbs rdma_ucm ib_umad
             rdma_rxe""".split()
# What only installing packages, reading manuals and running Perl would need.
NOT_PACKAGES = re.compile(r"^(perl|libperl|lib.*-perl$|usrmerge|dpkg|debconf|adduser|passwd|libpam|"
                          r"init-system|libsemanage|libsepol|libgdbm|gcc-)")
NOT_FILES = re.compile(r"^(usr/share/(?!libdrm|terminfo)|usr/lib/[^/]*/(gconv|perl)|var/|usr/include|boot/|"
                       r"usr/lib/[^/]*/libmlx4|usr/lib/[^/]*/libibverbs/lib(?!rxe)|etc/libibverbs.d/(?!rxe))")


class Unavailable(Exception):
    """The packages cannot be had here."""


def output(*argv):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if p.returncode:
        raise Unavailable(f"{' '.join(argv[:3])}…: {(p.stderr.strip() or '?').splitlines()[-1]}")
    return p.stdout


def newest_kernel():
    for line in output("apt-cache", "depends", KERNEL).splitlines():
        name = line.partition("Depends: ")[2]
        if name.startswith("linux-image-"):
            return name
    raise Unavailable(f"apt knows no package {KERNEL}")


def closure(cache):
    """All packages that a root with PROGRAMS needs, as name=version: asked of apt for a machine that has none."""
    empty = os.path.join(cache, "no-packages")
    with open(empty, "w", encoding="ascii"):
        pass
    text = output("apt-get", "--simulate", "--no-install-recommends", "-o", f"Dir::State::status={empty}",
                  "install", *PROGRAMS)
    found = re.findall(r"^Inst (\S+) \((\S+)", text, re.M)
    return [f"{name}={version}" for name, version in found if not NOT_PACKAGES.match(name)]


def download(cache):
    """Fetches the packages; returns their files, the kernel's first."""
    try:
        names = [newest_kernel()] + closure(cache)
    except Unavailable:
        if os.geteuid() != 0:
            raise
        output("apt-get", "update")  # a fresh machine has no lists
        names = [newest_kernel()] + closure(cache)
    folder = os.path.join(cache, "packages-" + hashlib.sha256(" ".join(names).encode()).hexdigest()[:12])
    if os.path.isdir(folder):
        return package_files(folder)
    for old in glob.glob(os.path.join(cache, "packages-*")):
        shutil.rmtree(old)
    work = os.path.join(cache, "fetching")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    subprocess.run(["apt-get", "-qq", "-o", "Acquire::Retries=2", "-o", "APT::Sandbox::User=root", "download"] +
                   names, cwd=work, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if len(os.listdir(work)) != len(names):
        raise Unavailable(f"apt-get download fetched {len(os.listdir(work))} of {len(names)} packages")
    os.rename(work, folder)
    return package_files(folder)


def package_files(folder):
    names = sorted(os.listdir(folder), key=lambda name: not name.startswith("linux-image-"))
    return [os.path.join(folder, name) for name in names]


class Root:
    """The files of the machine, written as a cpio archive of the kind that Linux boots from."""

    def __init__(self):
        self.files = {}  # path: (mode, bytes)
        for link in ("bin", "sbin", "lib", "lib64"):
            self.add(link, 0o120777, f"usr/{link}".encode())
        for folder in "dev proc sys run tmp root etc usr usr/bin usr/sbin usr/lib usr/lib64 modules".split():
            self.add(folder, 0o40755)

    def add(self, path, mode, data=b""):
        self.files[path] = (mode, data)

    def add_package(self, tar):
        for item in tar:
            path = os.path.normpath(item.name).lstrip("/")
            if re.match(r"s?bin/|lib(64)?/", path):
                path = "usr/" + path
            if path in self.files or path == "." or NOT_FILES.match(path):
                continue
            if item.isdir():
                self.add(path, 0o40000 | item.mode)
            elif item.issym():
                self.add(path, 0o120777, item.linkname.encode())
            elif item.islnk():
                self.add(path, *self.files[os.path.normpath(item.linkname)])
            elif item.isreg():
                self.add(path, 0o100000 | item.mode, tar.extractfile(item).read())

    def write(self, out):
        for number, path in enumerate(sorted(self.files) + ["TRAILER!!!"], 1):
            mode, data = self.files.get(path, (0, b""))
            name = path.encode() + b"\0"
            fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
            head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
            out.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))


def package(path):
    """The files of a package as an open tar archive."""
    p = subprocess.run(("dpkg-deb", "--fsys-tarfile", path), stdout=subprocess.PIPE, check=True)
    return tarfile.open(fileobj=io.BytesIO(p.stdout))


def module_name(path):
    return re.sub(r"\.ko(\.xz)?$", "", os.path.basename(path)).replace("-", "_")


def unpacked(image):
    """The kernel without its own unpacking, which takes emulated machines six seconds; QEMU starts either."""
    start = (image[0x1f1] + 1) * 512 + int.from_bytes(image[0x248:0x24c], "little")
    payload = image[start:start + int.from_bytes(image[0x24c:0x250], "little")]
    if not payload.startswith(b"\xfd7zXZ"):
        return image
    return lzma.LZMADecompressor().decompress(payload)


def kernel(path, root):
    """Adds the modules and the order in which they load to the root; returns the kernel itself."""
    found, image = {}, None
    with package(path) as tar:
        for item in tar:
            if "/boot/vmlinuz-" in item.name:
                image = tar.extractfile(item).read()
            elif re.search(r"\.ko(\.xz)?$", item.name):
                found[module_name(item.name)] = item
        order = []

        def load(name):
            if name in order or name not in found:  # not found: built into the kernel
                return
            data = tar.extractfile(found[name]).read()
            if found[name].name.endswith(".xz"):
                data = lzma.decompress(data)
            depends = re.search(rb"\0depends=([^\0]*)\0", data)[1].decode()
            for other in filter(None, depends.split(",")):
                load(other.replace("-", "_"))
            order.append(name)
            root.add(f"modules/{name}", 0o100644, data)

        for name in MODULES:
            load(name)
    if "rdma_rxe" not in order:
        raise Unavailable(f"{os.path.basename(path)} has no rdma_rxe")
    root.add("modules/order", 0o100644, "".join(f"{name}\n" for name in order).encode())
    return unpacked(image)


def agent(cache):
    path = os.path.join(cache, "agent")
    output("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", path, os.path.join(HERE, "agent.c"))
    with open(path, "rb") as f:
        return f.read()


def read(name):
    with open(os.path.join(HERE, name), "rb") as f:
        return f.read()


def make(cache):
    files = download(cache)
    root = Root()
    root.add("init", 0o100755, read("init.sh"))
    root.add("usr/bin/agent", 0o100755, agent(cache))
    root.add("usr/bin/sh", 0o120777, b"bash")
    root.add("usr/bin/nc", 0o120777, b"nc.openbsd")
    root.add("etc/passwd", 0o100644, b"root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/tmp:/bin/bash\n")
    root.add("etc/group", 0o100644, b"root:x:0:\nuser:x:1000:\n")
    root.add("etc/hosts", 0o100644, b"127.0.0.1 localhost\n10.0.2.1 vm1\n10.0.2.2 vm2\n")
    linux = kernel(files[0], root)
    for path in files[1:]:
        with package(path) as tar:
            root.add_package(tar)
    for name in APPLETS:
        if f"usr/bin/{name}" not in root.files:
            root.add(f"usr/bin/{name}", 0o120777, b"busybox")
    with open(os.path.join(cache, "linux"), "wb") as out:
        out.write(linux)
    with open(os.path.join(cache, "root.new"), "wb") as out:
        root.write(out)
    os.rename(os.path.join(cache, "root.new"), os.path.join(cache, "root"))


def ready(cache, again=False):
    """Makes kernel and root unless they are there; returns their paths. The packages are not asked for newer
    versions: a cache serves without a network."""
    os.makedirs(cache, exist_ok=True)
    made_from = hashlib.sha256(b"".join(read(name) for name in ("image.py", "init.sh", "agent.c"))).hexdigest()
    stamp = os.path.join(cache, "made-from")
    with open(os.path.join(cache, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with open(stamp, encoding="ascii") as f:
                current = f.read() == made_from
        except OSError:
            current = False
        if not current or again:
            make(cache)
            with open(stamp, "w", encoding="ascii") as f:
                f.write(made_from)
    return os.path.join(cache, "linux"), os.path.join(cache, "root")
