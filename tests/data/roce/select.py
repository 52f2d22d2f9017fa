#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes golden.pcap: from a folder of captures, a few packets of each kind.

usage: select.py FOLDER > golden.pcap

Kept of each capture: every connection management packet, and of each other opcode the first three
packets of different length (longer than 600 bytes: one), ACKs also by syndrome; every packet whose
invariant CRC is wrong or whose header version is not 0; one ARP and one TCP frame in all, which a
decoder must tell apart.
"""
import pathlib
import struct
import sys
import zlib

ROCE_PORT = 4791


def records(data):
    off = 24
    while off < len(data):
        n = struct.unpack_from("<I", data, off + 8)[0]
        yield data[off:off + 16], data[off + 16:off + 16 + n]
        off += 16 + n


def udp_payload_at(frame):
    """Offset of the UDP payload of a RoCE packet and of its IP header's end, or None."""
    ethertype = frame[12:14]
    if ethertype == b"\x08\x00" and frame[23] == 17:
        udp = 34
    elif ethertype == b"\x86\xdd" and frame[20] == 17:
        udp = 54
    else:
        return None
    return udp + 8 if struct.unpack_from(">H", frame, udp + 2)[0] == ROCE_PORT else None


def icrc_ok(frame, bth):
    p = bytearray(frame[14:])
    bth -= 14
    if p[0] >> 4 == 4:
        p[1] = p[8] = p[10] = p[11] = 0xff
    else:
        p[0] |= 0xf
        p[1] = p[2] = p[3] = p[7] = 0xff
    p[bth - 2] = p[bth - 1] = p[bth + 4] = 0xff
    return zlib.crc32(b"\xff" * 8 + bytes(p[:-4])) == struct.unpack("<I", p[-4:])[0]


def main():
    out = sys.stdout.buffer
    out.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 262144, 1))
    others = set()
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.pcap")):
        seen = {}
        for head, frame in records(path.read_bytes()):
            bth = udp_payload_at(frame)
            if bth is None:
                kind = frame[12:14]
                keep = kind not in others and (kind == b"\x08\x06" or frame[23] == 6)
                if keep:
                    others.add(kind)
            elif not icrc_ok(frame, bth) or frame[bth + 1] & 0xf:
                keep = True
            else:
                kind = frame[bth:bth + 1]
                if frame[bth] == 0x11:
                    kind += frame[bth + 12:bth + 13]
                lengths = seen.setdefault(kind, set())
                long = len(frame) > 600
                cm = frame[bth] == 0x64 and frame[bth + 5:bth + 8] == b"\0\0\x01"
                keep = cm or (len(frame) not in lengths and len(lengths) < (1 if long else 3))
                lengths.add(len(frame))
            if keep:
                out.write(head + frame)


main()
