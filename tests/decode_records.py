#!/usr/bin/env python3
"""Decodes a stream of Trapline's binary records to JSON, one object per line.

It shares no code with Trapline: it is written from docs/records.md, so that a
test can hold the one against the other. Standard library only.

    decode_records.py [--items] [FILE]

Reads standard input without FILE. With --items the data of data records is
taken to consist of items with prefixes only (no `log <count>`).
"""

import argparse
import json
import struct
import sys

KINDS = {0: "data", 1: "stack-trace", 2: "control", 3: "kernel-stack", 4: "user-stack"}
# Flag, name, struct code; W is the guest's word.
HEADER = [
    (0x0001, "major", "I"),
    (0x0002, "minor", "I"),
    (0x0004, "cpu", "I"),
    (0x0008, "pid", "I"),
    (0x0010, "uid", "I"),
    (0x0020, "cs", "I"),
    (0x0040, "ip", "W"),
    (0x0080, "ss", "I"),
    (0x0100, "sp", "W"),
    (0x0200, "tsc", "Q"),
]
NAME = 0x0400
TOKENS = {0x00: "mrf", 0x01: "str", 0x05: "lv", 0x06: "gv", 0x07: "log", 0xFE: "selector fault", 0xFF: "fault"}
# Tokens whose count is of words, not of bytes.
IN_WORDS = {0x04, 0x05, 0x06, 0x07}


class Bad(Exception):
    """The bytes are not what they should be."""


class Cursor:
    """Reads little-endian fields; every read is checked."""

    def __init__(self, data, width=0):
        self.data, self.at, self.width = data, 0, width

    def raw(self, count):
        piece = self.data[self.at : self.at + count]
        if len(piece) < count:
            raise Bad(f"{count} bytes are due at byte {self.at}, {len(piece)} are there")
        self.at += count
        return piece

    def field(self, code):
        if code == "W":
            code = "Q" if self.width == 64 else "I"
        return struct.unpack("<" + code, self.raw(struct.calcsize("<" + code)))[0]

    def words(self, count):
        return [self.field("W") for _ in range(count)]

    def prefix(self, token):
        found, count = self.field("B"), self.field("H")
        if found != token:
            raise Bad(f"token {token:#04x} is due, {found:#04x} is there")
        return count

    def left(self):
        return len(self.data) - self.at


def frame(c):
    called, ret = c.words(2)
    lists = [c.words(c.prefix(token)) for token in (0x04, 0x05, 0x06)]
    return {"called": called, "return": ret, "stack": lists[0], "lv": lists[1], "gv": lists[2]}


def trace_record(c):
    code, handler, parm1, parm2 = c.words(4)
    frames = [frame(c) for _ in range(c.prefix(0x03))]
    return {"code": code, "handler": handler, "parm1": parm1, "parm2": parm2, "frames": frames}


def stack_trace(data, width):
    c = Cursor(data, width)
    module = c.raw(c.prefix(0x01)).decode("latin-1")
    offset = c.field("W")
    ident, major, minor = c.field("I"), c.field("I"), c.field("I")
    records = [trace_record(c) for _ in range(c.prefix(0x02))]
    if c.left():
        raise Bad(f"{c.left()} bytes follow the stack trace")
    return {
        "module": module,
        "offset": offset,
        "id": ident,
        "major": major,
        "minor": minor,
        "records": records,
    }


def guest_stack(data, width):
    c = Cursor(data, width)
    modules = []
    for _ in range(c.field("B")):
        base = c.field("W")
        modules.append({"base": base, "name": c.raw(c.field("H")).decode("latin-1")})
    frames = []
    while c.left():
        number = c.field("B")
        frames.append({"module": number & 127, "exact": number > 127, "ip": c.field("W")})
        if number & 127 > len(modules):
            raise Bad(f"there is no module {number & 127}")
    return {"modules": modules, "frames": frames}


def items(data, width):
    c, out = Cursor(data, width), []
    while c.left():
        token, count = c.field("B"), c.field("H")
        if token not in TOKENS:
            raise Bad(f"there is no token {token:#04x}")
        if token in IN_WORDS:
            value = c.words(count)
        elif token in (0xFE, 0xFF):
            value = int.from_bytes(c.raw(count), "little")
        elif token == 0x01:
            value = c.raw(count).decode("latin-1")
        else:
            value = c.raw(count).hex()
        out.append({"item": TOKENS[token], "value": value})
    return out


def record(body, with_items):
    c = Cursor(body)
    out = {"seq": c.field("Q"), "time": c.field("Q")}
    kind, c.width, out["termination"] = c.field("B"), c.field("B"), c.field("H")
    if kind not in KINDS or c.width not in (32, 64):
        raise Bad(f"kind {kind} and width {c.width} are not possible")
    out["kind"], out["width"] = KINDS[kind], c.width
    flags = c.field("I")
    if flags >= 2 * NAME:
        raise Bad(f"flags {flags:#x} are not possible")
    for flag, name, code in HEADER:
        if flags & flag:
            out[name] = c.field(code)
    if flags & NAME:
        end = body.index(b"\0", c.at)
        out["name"] = c.raw(end - c.at).decode("latin-1")
        c.raw(1)
    data = body[c.at :]
    out["data"] = data.hex()
    if kind == 1:
        out["trace"] = stack_trace(data, c.width)
    elif kind in (3, 4):
        out["stack"] = guest_stack(data, c.width)
    elif kind == 0 and with_items:
        out["items"] = items(data, c.width)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", action="store_true", help="decode the items of data records")
    parser.add_argument("file", nargs="?")
    args = parser.parse_args()
    if args.file:
        with open(args.file, "rb") as source:
            stream = Cursor(source.read())
    else:
        stream = Cursor(sys.stdin.buffer.read())
    try:
        while stream.left():
            body = stream.raw(stream.field("I"))
            print(json.dumps(record(body, args.items)))
    except (Bad, ValueError) as why:
        sys.exit(f"decode_records.py: {why}")


if __name__ == "__main__":
    main()
