# SPDX-License-Identifier: BSD-3-Clause
"""Addresses: in use, stale, too long, not permitted, IPv6 and its zones, families that are not there."""

import ctypes
import errno
import os
import re
import shutil
import socket
import stat
import subprocess

from peerlib import (TCP_UNIX, Fail, Process, Skip, case, check, each, exchange, has_ipv6, limits,
                     need_program, need_root)

CLONE_NEWNET = 0x40000000
NOBODY = 65534


def echo_fails(env, url, words, codes=(1,), **kw):
    """gpunet echo on this URL must end by itself, with a reason that has one of the words."""
    p = Process(env, env.command("echo", url, "--device", env.device), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, **kw)
    code = p.wait(15, f"echo {url} did not end")
    check(code in codes, f"echo {url}: exit {code}, not {codes}; stderr: {p.err()[-400:]!r}")
    text = p.err().lower()
    check(any(w in text for w in words), f"echo {url}: none of {words} in {p.err()[-400:]!r}")
    return p.err()


@each(TCP_UNIX)
def in_use_by_cpu_program(env, kind):
    """A CPU program holds the address: the kernel's bind or listen fails with EADDRINUSE."""
    from cases_stream import listen_like

    with listen_like(env, kind) as (_, url):
        echo_fails(env, url, ("in use",))


@case("in_use_by_cpu_program_abstract")
def in_use_by_cpu_program_abstract(env):
    in_use = env.url("abstract")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.bind("\0" + in_use[6:])
        s.listen(1)
        echo_fails(env, in_use, ("in use",))


@each(("tcp", "unix", "abstract"))
def in_use_by_kernel(env, kind):
    """A kernel holds the address: a CPU program's bind fails with EADDRINUSE, a second kernel's too."""
    from peerlib import address

    server = env.echo(env.url(kind))
    family, addr = address(server.url)
    with socket.socket(family, socket.SOCK_STREAM) as s:
        if family == socket.AF_INET:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(addr)
            s.listen(1)
            raise Fail(f"{server.url} could be bound a second time")
        except OSError as e:
            check(e.errno == errno.EADDRINUSE, f"bind: {e}")
    echo_fails(env, server.url, ("in use",))
    server.serves("after others tried its address")


@case("rebind_at_once", limit=60)
def rebind_at_once(env):
    """A server that ended, connections in TIME_WAIT and all, has its port again at once."""
    server = env.echo(env.url("tcp"))
    url = server.url
    for _ in range(4):
        server.serves()
        s = server.connect()
        s.sendall(b"x")
        s.recv(1)
        server.stop()  # the server closes first: its side keeps TIME_WAIT
        check(s.recv(1) == b"", "bytes from a server that ended")
        s.close()
        server = env.echo(url)
        check(server.url == url, f"{server.url} instead of {url}")
    server.serves()


@case("unix_stale")
def unix_stale(env):
    """A socket file whose owner is gone: a client is refused, a server takes it over."""
    url = env.url("unix")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.bind(url[7:])
    cat = env.cat(url, stdin=subprocess.DEVNULL)
    cat.expect(1)
    check("refused" in cat.err().lower(), f"cat's reason is missing: {cat.err()!r}")
    server = env.echo(url)
    server.serves()
    server.stop()
    check(not os.path.exists(url[7:]), "the socket file is left behind")


@case("unix_absent")
def unix_absent(env):
    """No such path, for a client and, one folder up, for a server."""
    url = env.url("unix")
    cat = env.cat(url, stdin=subprocess.DEVNULL)
    cat.expect(1)
    check("no such file" in cat.err().lower(), f"cat's reason is missing: {cat.err()!r}")
    echo_fails(env, url + "/none/sock", ("no such file", "not a directory"))


@case("unix_regular_file")
def unix_regular_file(env):
    """An ordinary file in the way is reported and left alone."""
    url = env.url("unix")
    with open(url[7:], "w", encoding="ascii") as f:
        f.write("keep me")
    echo_fails(env, url, ("in use", "exists"))
    check(stat.S_ISREG(os.stat(url[7:]).st_mode), "the file is gone")


@case("unix_too_long")
def unix_too_long(env):
    """One byte more than sockaddr_un holds is refused with the limit; the longest path works."""
    room = 107 - len(env.folder) - 1
    check(room > 0, "the test's folder is too long itself")
    longest = os.path.join(env.folder, "x" * room)
    server = env.echo("unix://" + longest)
    server.serves()
    server.stop()
    text = echo_fails(env, "unix://" + longest + "y", ("too long", "longer"), codes=(1, 2))
    check("107" in text or "108" in text, f"the limit is missing: {text!r}")


@case("unix_not_permitted")
def unix_not_permitted(env):
    """A folder without write permission: EACCES in words."""
    folder = os.path.join(env.folder, "locked")
    os.mkdir(folder, 0o555)
    kw = {}
    if os.geteuid() == 0:
        os.chmod(env.folder, 0o755)
        if not readable_by_others(env.gpunet):
            raise Skip("root is permitted everything, and nobody cannot reach the program")
        kw["preexec_fn"] = limits(uid=NOBODY)
    echo_fails(env, "unix://" + folder + "/sock", ("permission denied",), **kw)


def readable_by_others(path):
    while path != "/":
        mode = os.stat(path).st_mode
        if not mode & stat.S_IROTH and not mode & stat.S_IXOTH:
            return False
        path = os.path.dirname(path)
    return True


@case("port_not_permitted")
def port_not_permitted(env):
    """A privileged port as an ordinary user."""
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as f:
        if int(f.read()) <= 7:
            raise Skip("every port is free for everybody here")
    kw = {}
    if os.geteuid() == 0:
        if not readable_by_others(env.gpunet):
            raise Skip("root is permitted everything, and nobody cannot reach the program")
        kw["preexec_fn"] = limits(uid=NOBODY)
    echo_fails(env, "tcp://127.0.0.1:7", ("permission denied",), **kw)


@case("unix_path_again")
def unix_path_again(env):
    """A server that ended cleanly can be started again on its path."""
    url = env.url("unix")
    for _ in range(3):
        server = env.echo(url)
        server.serves()
        server.stop()


@case("address_not_local")
def address_not_local(env):
    """An address of somebody else (TEST-NET-1)."""
    echo_fails(env, "tcp://192.0.2.1:0", ("cannot assign", "not available"))


@case("bad_urls")
def bad_urls(env):
    """A URL that is none is a usage error."""
    for url in ("", "tcp", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:65536",
                "tcp://127.0.0.1:-1", "tcp://127.0.0.1:http0", "tcp://[::1:1", "unix:", "unix://",
                "unix:@", "gopher://127.0.0.1:70"):
        p = Process(env, env.command("echo", url, "--device", env.device),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        code = p.wait(15, f"echo {url!r} did not end")
        check(code == 2, f"echo {url!r}: exit {code}; stderr: {p.err()[-300:]!r}")
        check(p.err(), f"echo {url!r}: no reason")


@case("name_not_found")
def name_not_found(env):
    """A name that does not resolve (.invalid never does): exit 1, the name in the reason."""
    # Where no name server answers, the resolver finds out soon.
    text = echo_fails(env, "tcp://no-such-host.invalid:0", ("no-such-host",),
                      extra_env={"RES_OPTIONS": "timeout:1 attempts:1"})
    check(text, "no reason")


@case("any_address")
def any_address(env):
    """0.0.0.0 listens everywhere; [::] also serves IPv4 clients, as the system's default has it."""
    server = env.echo("tcp://0.0.0.0:0")
    with socket.create_connection(("127.0.0.1", server.port()), env.seconds(10)) as s:
        exchange(s, b"by 127.0.0.1")
    if not has_ipv6():
        return
    with open("/proc/sys/net/ipv6/bindv6only", encoding="ascii") as f:
        both = f.read().strip() == "0"
    server = env.echo("tcp://[::]:0")
    for host in ("::1",) + (("127.0.0.1",) if both else ()):
        with socket.create_connection((host, server.port()), env.seconds(10)) as s:
            exchange(s, host.encode())


@case("zone_unknown")
def zone_unknown(env):
    """An interface that does not exist: the error lists those that do."""
    if not has_ipv6():
        raise Skip("no IPv6 loopback here")
    text = echo_fails(env, "tcp://[fe80::1%nosuch0]:0", ("nosuch0",), codes=(1, 2))
    check("lo" in re.split(r"[ ,:\n]+", text), f"the interfaces are not listed: {text!r}")


# ---- network namespaces -----------------------------------------------------------------------

def unshare(flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        raise Skip(f"unshare: {os.strerror(ctypes.get_errno())}")


def new_net(env):
    """This case's process, and all that it starts, into a network namespace without anything."""
    need_root()
    need_program("ip")
    check(env.device in ("cpu", "cuda"), "unknown device")
    unshare(CLONE_NEWNET)


def ip(*args):
    p = subprocess.run(("ip",) + args, capture_output=True, text=True, check=False)
    if p.returncode:
        raise Skip(f"ip {' '.join(args)}: {p.stderr.strip()}")
    return p.stdout


def link_local(name):
    """The interface's link-local address, when it may be used."""
    import time

    for _ in range(200):
        for line in ip("-6", "-o", "addr", "show", "dev", name, "scope", "link").splitlines():
            if "tentative" not in line:
                return line.split()[3].split("/")[0]
        time.sleep(0.05)
    raise Skip(f"{name} has no link-local address")


@case("link_local_zone", limit=60)
def link_local_zone(env):
    """fe80::…%interface over a veth pair: server and client keep the zone."""
    new_net(env)
    ip("link", "set", "lo", "up")
    ip("link", "add", "gpv0", "type", "veth", "peer", "name", "gpv1")
    for name in ("gpv0", "gpv1"):
        path = f"/proc/sys/net/ipv6/conf/{name}/accept_dad"
        if os.path.exists(path):
            with open(path, "w", encoding="ascii") as f:
                f.write("0")
        ip("link", "set", name, "up")
    host = link_local("gpv0")
    server = env.echo(f"tcp://[{host}%gpv0]:0")
    check("%gpv0" in server.url, f"the zone is lost in {server.url!r}")
    server.serves()
    cat = env.cat(server.url)
    got, _ = cat.p.communicate(b"over the zone", timeout=env.seconds(20))
    cat.expect(0)
    check(got == b"over the zone", f"got {got!r}")
    # The same address without its zone is nobody's.
    cat = env.cat(server.url.replace("%gpv0", ""), stdin=subprocess.DEVNULL)
    cat.expect(1)


@case("ipv4_only", limit=60)
def ipv4_only(env):
    """IPv6 is off: IPv4 and names work, an IPv6 address fails at once with its reason."""
    new_net(env)
    ip("link", "set", "lo", "up")
    for name in ("all", "lo", "default"):
        path = f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6"
        if os.path.exists(path):
            with open(path, "w", encoding="ascii") as f:
                f.write("1")
    env.echo("tcp://127.0.0.1:0").serves()
    server = env.echo("tcp://localhost:0")
    server.serves()
    cat = env.cat(f"tcp://localhost:{server.port()}")
    got, _ = cat.p.communicate(b"by name", timeout=env.seconds(20))
    cat.expect(0)
    check(got == b"by name", f"got {got!r}")
    echo_fails(env, "tcp://[::1]:0", ("cannot assign", "not available", "not supported",
                                      "unreachable"))


@case("ipv6_only", limit=60)
def ipv6_only(env):
    """No IPv4 address anywhere: IPv6 works, also by name; IPv4 fails at once."""
    new_net(env)
    ip("link", "set", "lo", "up")
    ip("addr", "del", "127.0.0.1/8", "dev", "lo")
    if not has_ipv6():
        raise Skip("no IPv6 here")
    server = env.echo("tcp://[::1]:0")
    server.serves()
    cat = env.cat(f"tcp://127.0.0.1:{server.port()}", stdin=subprocess.DEVNULL)
    cat.expect(1)
    check("unreachable" in cat.err().lower() or "refused" in cat.err().lower(),
          f"the reason is missing: {cat.err()!r}")


@case("no_network")
def no_network(env):
    """Not even a loopback interface that is up: a client fails at once, UNIX sockets work."""
    new_net(env)
    cat = env.cat("tcp://127.0.0.1:7", stdin=subprocess.DEVNULL)
    cat.expect(1)
    check("unreachable" in cat.err().lower(), f"the reason is missing: {cat.err()!r}")
    env.echo(env.url("unix")).serves()


@case("abstract_other_namespace")
def abstract_other_namespace(env):
    """Abstract names belong to a network namespace: from another one they are refused."""
    need_root()
    server = env.echo(env.url("abstract"))
    server.serves()
    unshare(CLONE_NEWNET)
    cat = env.cat(server.url, stdin=subprocess.DEVNULL)
    cat.expect(1)
    check("refused" in cat.err().lower(), f"the reason is missing: {cat.err()!r}")


@case("unix_full_disk")
def unix_full_disk(env):
    """A file system without room for the socket file: the reason reaches the user."""
    need_root()
    need_program("mount")
    unshare(0x00020000)  # CLONE_NEWNS
    folder = os.path.join(env.folder, "full")
    os.mkdir(folder)
    for cmd in (("mount", "--make-rprivate", "/"),
                ("mount", "-t", "tmpfs", "-o", "nr_inodes=1", "none", folder)):
        p = subprocess.run(cmd, capture_output=True, text=True, check=False)
        if p.returncode:
            raise Skip(p.stderr.strip())
    echo_fails(env, "unix://" + folder + "/sock", ("no space",))
    shutil.rmtree(folder, ignore_errors=True)
