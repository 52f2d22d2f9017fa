#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One step of the tests of the installed tree; see CMakeLists.txt. Exit code 77: skipped.

`tree` installs into WORK/first and moves that to WORK/moved; the others build the consumer from there.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CONSUMER = os.path.join(HERE, "consumer")


class Failed(Exception):
    pass


def skip(reason):
    print(reason)
    sys.exit(77)


def call(command, limit=200, **more):
    print("+", " ".join(command), flush=True)
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=limit, check=False, **more)
    print(run.stdout, flush=True)
    if run.returncode != 0:
        raise Failed(f"{command[0]}: exit code {run.returncode}")
    return run.stdout


def nvcc():
    return shutil.which("nvcc") or skip("no nvcc")


def quickly():
    """How to compile in a second what nvcc takes fifteen for: whether a user's program builds does not depend on it."""
    said = subprocess.run([nvcc(), "--help"], stdout=subprocess.PIPE, text=True, timeout=60, check=False).stdout
    return ["--Ofast-compile=max"] if "--Ofast-compile" in said else []


def prefix(o):
    return os.path.join(o.work, "moved")


def fresh(o):
    folder = os.path.join(o.work, o.step)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def pkgconfig(o, *args):
    tool = shutil.which("pkg-config") or skip("no pkg-config")
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix(o), o.libdir, "pkgconfig"))
    return call([tool, *args, "gpunet"], env=env).split()


def needed(program):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", call(["readelf", "-d", program]))


def use(o, program, shared):
    """Runs a consumer: it must find the moved library, and nothing may want the driver by name."""
    libraries = needed(program)
    if any(name.startswith("libcuda.so") for name in libraries):
        raise Failed("linked with the CUDA driver, which is loaded at run time")
    if shared != ("libgpunet.so.0" in libraries):
        raise Failed(f"shared={shared}, but it needs {libraries}")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPUNET_")}
    env["GPUNET_DEVICE"] = "cpu"
    if shared:
        env["LD_LIBRARY_PATH"] = os.path.join(prefix(o), o.libdir)
    output = call([program], limit=60, env=env)
    if "stub library" in output or "consumer: ok" not in output:
        raise Failed("the consumer did not say ok")


def tree(o):
    first = os.path.join(o.work, "first")
    shutil.rmtree(o.work, ignore_errors=True)
    call(["cmake", "--install", o.build, "--prefix", first])
    os.rename(first, prefix(o))
    wrong = []
    for folder, _, names in os.walk(prefix(o)):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as stream:
                content = stream.read()
            wrong += [f"{path} names {place}" for place in (first, o.source)
                      if place.encode() in content]
    expected = ["include/gpunet/gpunet.h", f"{o.libdir}/libgpunet.so", f"{o.libdir}/libgpunet.a",
                f"{o.libdir}/pkgconfig/gpunet.pc", f"{o.libdir}/cmake/gpunet/gpunet-config.cmake"]
    expected += [f"share/doc/gpunet/{name}" for name in ("LICENSE", "guide.md", "options.md", "subset.md", "rnic.md", "measurements.md")]
    # A page that was written is installed; a tool that was built, too.
    for page in os.listdir(os.path.join(o.source, "man")) if os.path.isdir(
            os.path.join(o.source, "man")) else []:
        if re.search(r"\.[137]$", page):
            expected.append(f"share/man/man{page[-1]}/{page}")
    # And is found by the name of each call in it.
    expected += [f"share/man/man3/{name}.3" for name in ("gsendto_warp", "grecv_return", "GPUNET_LAUNCH", "gpunet_sync")]
    if os.path.exists(os.path.join(o.build, "bin/gpunet")):
        expected.append("bin/gpunet")
    wrong += [f"{name} is missing" for name in expected
              if not os.path.exists(os.path.join(prefix(o), name))]
    if wrong:
        raise Failed("\n".join(wrong))


def cmake_consumer(o, *options):
    folder = fresh(o)
    call(["cmake", "-S", CONSUMER, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix(o)}",
          f"-DCMAKE_C_COMPILER={o.cc}", *options])
    call(["cmake", "--build", folder])
    return os.path.join(folder, "consumer")


def cmake_shared(o):
    use(o, cmake_consumer(o), True)


def cmake_static(o):
    use(o, cmake_consumer(o, "-DCONSUMER_TARGET=gpunet::gpunet_static"), False)


def cmake_version(o):
    """A version that this is not must not be accepted."""
    try:
        cmake_consumer(o, "-DCONSUMER_WANTS=9.9")
    except Failed:
        return
    raise Failed("find_package(gpunet 9.9) succeeded")


def pkgconfig_shared(o):
    program = os.path.join(fresh(o), "consumer")
    call([o.cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", os.path.join(CONSUMER, "main.c"),
          "-o", program, *pkgconfig(o, "--cflags", "--libs")])
    use(o, program, True)


def guide_code(o):
    """All that the guide has as C."""
    with open(os.path.join(prefix(o), "share/doc/gpunet/guide.md"), encoding="utf-8") as stream:
        return re.findall(r"(?s)```c\n(.*?)```", stream.read())


def guide_program(o):
    """The guide's whole program, as a reader would cut it out; the file it is in."""
    programs = [text for text in guide_code(o) if "int main(" in text]
    if len(programs) != 1:
        raise Failed(f"{len(programs)} whole programs in the guide")
    path = os.path.join(fresh(o), "upper.c")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(programs[0])
    return path


def ask(port, text):
    with socket.create_connection(("127.0.0.1", port), 20) as peer:
        peer.sendall(text)
        peer.shutdown(socket.SHUT_WR)
        with peer.makefile("rb") as answer:
            return answer.read()


def guide(o):
    """The guide's program builds without a warning, serves, says when its port is taken, and ends on SIGINT."""
    path = guide_program(o)
    program = path[:-2]
    call([o.cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", path, "-o", program,
          *pkgconfig(o, "--cflags", "--libs")])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(prefix(o), o.libdir))
    with subprocess.Popen([program, str(port)], stdout=subprocess.PIPE, env=env, text=True) as server:
        try:
            if server.stdout.readline() != "serving\n":
                raise Failed("the program did not serve")
            sent = b"from a to z, {123} \xc3\xa4\n" * 5000
            if ask(port, sent) != sent.upper():
                raise Failed("not the same in capitals")
            second = subprocess.run([program, str(port)], env=env, text=True, timeout=60, check=False,
                                    stderr=subprocess.PIPE)
            if second.returncode != 1 or "in use" not in second.stderr:
                raise Failed(f"on a port that is taken: {second}")
            server.send_signal(signal.SIGINT)
            if server.wait(30) != 0:
                raise Failed(f"exit code {server.returncode} after SIGINT")
        finally:
            server.kill()


# What the guide's fragments are about, and the words that they use without saying so.
AROUND = """#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

struct head { int kind; };
struct args { gnet_t *net; int fd; char *buf, *body; struct head *header; uint64_t len, body_len; unsigned *count; };

int complain(const char *text);
"""

FRAGMENT = """
GNET_KERNEL(%s, struct args, a)
{
	gnet_t *net = a.net;
	struct head *header = a.header;
	char *buf = a.buf, *body = a.body;
	uint64_t len = a.len, body_len = a.body_len;
	unsigned *count = a.count;
	int fd = a.fd;
	int64_t n = 0;

	(void)net, (void)header, (void)buf, (void)body, (void)len, (void)body_len, (void)count, (void)n;
	do {
%s
	} while (a.fd < 0);
	(void)fd;
}
"""


def guide_fragments(o):
    """Files with all else that the guide has as C, each piece in a place of the kind that it is for."""
    folder = fresh(o)
    kernels, host, old = [AROUND], [], []
    for number, text in enumerate(guide_code(o)):
        if "int main(" in text:
            continue
        if "gpunet2014.h" in text:
            kernel, launch = text.split("\t/* on the host */\n")
            old.append(f"{kernel}\nint launch(gpunet_t *g, struct gpunet_grid grid, struct sockaddr_in *addr, uchar *buf);\n"
                       f"int launch(gpunet_t *g, struct gpunet_grid grid, struct sockaddr_in *addr, uchar *buf)\n"
                       f"{{\n\treturn {launch.strip()}\n}}\n")
        elif "gpunet_open(" in text:
            host.append(FRAGMENT % ("serve", "\t\tgclose(net, fd);"))
            host.append(f"int host_{number}(void);\nint host_{number}(void)\n{{\n{text}\n\treturn 0;\n}}\n")
        else:
            kernels.append(text if "GNET_KERNEL" in text else FRAGMENT % (f"fragment_{number}", text))
    files = {"guide.h": "".join(kernels), "all.c": '#include "guide.h"\n' + "".join(host), "old.c": "".join(old)}
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)
    return folder


def guide_snippets(o):
    """What else the guide shows builds without a warning, and its servers serve."""
    folder = guide_fragments(o)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", folder]
    for name in ("all.c", "old.c"):
        call([o.cc, *flags, "-c", os.path.join(folder, name), "-o", os.path.join(folder, name + ".o"),
              *pkgconfig(o, "--cflags")])
    program = os.path.join(folder, "guide_servers")
    call([o.cc, *flags, os.path.join(HERE, "guide_servers.c"), "-o", program, *pkgconfig(o, "--cflags", "--libs")])
    guide_server(o, [program, "udp"], socket.SOCK_DGRAM, ask_datagrams)
    guide_server(o, [program, "many"], socket.SOCK_STREAM, ask_together)


def guide_server(o, command, kind, asks):
    """Starts one on a free port, lets `asks` use it, and ends it with SIGTERM."""
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    env = dict(os.environ, GPUNET_DEVICE="cpu", LD_LIBRARY_PATH=os.path.join(prefix(o), o.libdir))
    with subprocess.Popen([*command, str(port)], env=env) as server:
        try:
            asks(port)
            server.send_signal(signal.SIGTERM)
            if server.wait(30) != 0:
                raise Failed(f"exit code {server.returncode} after SIGTERM")
        finally:
            server.kill()


def ask_datagrams(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(0.2)
        for sent in (b"first", b"", b"x" * 1000):
            answer(client, port, sent)


def ask_together(port):
    """Clients that stay, one that goes, and more than a block takes at once: the last one has its turn when another has gone."""
    clients = [connected(port) for _ in range(63)]
    for turn in range(3):
        for number, client in reversed(list(enumerate(clients))):
            ask_stream(client, b"%d of turn %d" % (number, turn))
        clients.pop(turn * 10).close()
        clients.append(connected(port))
    late = connected(port)
    late.sendall(b"late")
    clients.pop(5).close()
    ask_stream(late, b"", b"late")
    for client in [*clients, late]:
        client.close()


def ask_stream(client, sent, wanted=None):
    client.sendall(sent)
    wanted = wanted or sent
    got = b""
    while len(got) < len(wanted):
        some = client.recv(4096)
        if not some:
            raise Failed(f"the end after {got}")
        got += some
    if got != wanted:
        raise Failed(f"{got}, not {wanted}")


def connected(port):
    """The server may not be there yet."""
    for _ in range(150):
        try:
            return socket.create_connection(("127.0.0.1", port), 20)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise Failed("nobody listens")


def answer(client, port, sent):
    """Sends until it comes back: the server may not be there yet."""
    for _ in range(150):
        client.sendto(sent, ("127.0.0.1", port))
        try:
            if client.recv(4096) == sent:
                return
        except TimeoutError:
            pass
    raise Failed(f"no answer to {len(sent)} bytes")


def cuda_object(o, path):
    call([nvcc(), *quickly(), "-x", "cu", "-arch=sm_80", "-c", path, "-o", path[:-1] + "o",
          *pkgconfig(o, "--cflags")])


def guide_cuda(o):
    cuda_object(o, guide_program(o))
    folder = guide_fragments(o)
    for name in ("all.c", "old.c"):
        cuda_object(o, os.path.join(folder, name))


def static_flags(o):
    flags = [flag for flag in pkgconfig(o, "--static", "--cflags", "--libs") if flag != "-lgpunet"]
    return flags, os.path.join(prefix(o), o.libdir, "libgpunet.a")


def pkgconfig_static(o):
    program = os.path.join(fresh(o), "consumer")
    flags, archive = static_flags(o)
    # With every object of the archive, so that a clash of names shows (L3).
    call([o.cc, "-std=gnu11", os.path.join(CONSUMER, "main.c"), "-o", program,
          "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", *flags])
    use(o, program, False)


def cuda_cmake(o):
    folder = os.path.dirname(cmake_consumer(o, "-DCONSUMER_CUDA=ON",
                                            f"-DCMAKE_CUDA_COMPILER={nvcc()}",
                                            f"-DCMAKE_CUDA_FLAGS={' '.join(quickly())}"))
    use_cuda(o, os.path.join(folder, "consumer"))


def use_cuda(o, program):
    """On a GPU it runs; elsewhere it must say in words that there is none."""
    libraries = needed(program)
    if any(name.startswith("libcuda.so") for name in libraries):
        raise Failed("linked with the CUDA driver, which is loaded at run time")
    env = library_path(o, dict(os.environ, GPUNET_DEVICE="cuda"))
    if os.path.exists("/dev/nvidiactl"):
        if "consumer: ok" not in call([program], limit=60, env=env):
            raise Failed("the consumer did not say ok")
    else:
        run = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, timeout=60, check=False, env=env)
        print(run.stdout)
        if run.returncode != 1 or "consumer: no device: " not in run.stdout:
            raise Failed(f"without a GPU: exit code {run.returncode}")
        if "stub library" in run.stdout:
            raise Failed("the CUDA driver's stub was loaded")


def library_path(o, env):
    cudart = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc()))), "lib64")
    env["LD_LIBRARY_PATH"] = os.path.join(prefix(o), o.libdir) + ":" + cudart
    return env


def cuda_cudart(o):
    """With the static CUDA run time and every object of the archive; with the shared one."""
    folder = fresh(o)
    flags, archive = static_flags(o)
    whole = ["-Xlinker", "--whole-archive", archive, "-Xlinker", "--no-whole-archive"]
    call([nvcc(), *quickly(), "-x", "cu", "-std=c++17", "-arch=sm_80", "-c", os.path.join(CONSUMER, "main.c"),
          "-o", os.path.join(folder, "consumer.o"), *flags])
    for cudart, libraries in (("static", whole), ("shared", [archive])):
        program = os.path.join(folder, cudart)
        call([nvcc(), "-cudart", cudart, os.path.join(folder, "consumer.o"), "-o", program, *libraries, *flags])
        use_cuda(o, program)


def main():
    steps = {name.replace("_", "-"): fn for name, fn in globals().items() if callable(fn)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step")
    for name in ("source", "build", "work", "cc", "libdir"):
        parser.add_argument("--" + name, required=True)
    o = parser.parse_args()
    try:
        steps[o.step](o)
    except Failed as error:
        print(f"{o.step}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
