#!/usr/bin/env python3
"""Decodes PPDF files, written from docs/ppdf.md alone and with the standard library alone.

Usage: ppdf_decode.py docs/ppdf.md FILE.ppdf

Prints one JSON object a line: the header, each probe point and procedure with its instructions, the end. Opcodes are
read from the document, so that the document is tried too. Signatures are shown and not checked.
"""

import json
import re
import struct
import sys
import zlib

OPERAND_BYTES = {
    "-": 0, "label": 4, "proc": 4, "value": 8, "count8": 1, "count16": 2, "u32": 4, "lv": 2, "gv": 2,
    "disp": 4, "push_r": 1, "push_u": 1, "pop_r": 1, "pop_u": 1,
}


def opcodes(document):
    """Opcode to (operand, form), from the first text block of the document."""
    with open(document, encoding="utf-8") as file:
        block = file.read().split("```text\n")[1].split("```")[0]
    table = {}
    for line in block.splitlines():
        opcode, operand, form = re.fullmatch(r"([0-9a-f]{2}) (\S+) +(.+)", line).groups()
        assert operand in OPERAND_BYTES, line
        table[int(opcode, 16)] = (operand, form)
    return table


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        assert self.at + count <= len(self.data), f"{count} bytes at {self.at} of {len(self.data)}"
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, count, signed=False):
        return int.from_bytes(self.take(count), "little", signed=signed)

    def u8(self):
        return self.number(1)

    def u32(self):
        return self.number(4)

    def text(self):
        return self.take(self.u32()).decode("utf-8")

    def texts(self):
        return [self.text() for _ in range(self.u32())]

    def expression(self):
        terms = []
        for _ in range(self.u32()):
            kind = self.u8()
            assert kind < 4, kind
            value = self.number(8) if kind < 2 else self.text()
            terms.append(["-" if kind & 1 else "+", value])
        assert terms
        return terms

    def finish(self):
        assert self.at == len(self.data), f"{len(self.data) - self.at} bytes are left"


def sections(data):
    """Version, and sections by their tags."""
    magic, major, minor, length = struct.unpack_from("<8sHHI", data)
    assert magic == bytes.fromhex("89 50 50 44 46 0d 0a 1a"), magic
    assert major == 1, major
    assert length == len(data), (length, len(data))
    found = {}
    at = 16
    while at < len(data):
        tag, length = struct.unpack_from("<4sI", data, at)
        tag = tag.decode("ascii")
        assert tag not in found and at + 8 + length <= len(data), tag
        found[tag] = Reader(data[at + 8:at + 8 + length])
        at += 8 + length
    order = [tag for tag in found if tag != "SIGN"]
    assert order == ["HEAD", "PROB", "PROC", "CODE", "RELO", "LINE", "CRC "], order
    assert list(found).index("CRC ") == len(found) - 1
    assert found["CRC "].u32() == zlib.crc32(data[:-4])
    return f"{major}.{minor}", found


def head(reader):
    modtype, flags, zero = reader.u8(), reader.u8(), reader.number(2)
    assert zero == 0
    keys = ["vars", "gvars", "major", "id", "logmax", "jmpmax", "excpt_mask", "excpt_log"]
    fields = {"modtype": ["kernel", "kmod", "user"][modtype]}
    fields.update({key: reader.u32() for key in keys})
    fields["logonfault"] = bool(flags & 1)
    fields["autostacktrace"] = bool(flags & 2)
    fields["name"] = reader.text()
    fields["groupdef"] = reader.texts()
    fields["typedef"] = reader.texts()
    reader.finish()
    return fields


def probe(reader):
    """A probe point and the number of its instructions."""
    form, kind, flags, opcode = reader.u8(), reader.u8(), reader.u8(), reader.u8()
    assert form < 3 and kind < 5 and (flags & 1 or kind) and (kind == 0 or form)
    minor, ignore, maxhits, mask, count = (reader.u32() for _ in range(5))
    point = {
        "type": "probe", "form": "address" if form else "offset", "location": reader.expression(),
        "end": reader.expression() if form == 2 else None, "opcode": opcode, "minor": minor, "ignore": ignore,
        "maxhits": maxhits, "logonfault": bool(flags & 4) if flags & 2 else None,
        "excpt_mask": mask if flags & 8 else None,
    }
    point["watchpoint"] = [None, "x", "w", "rw", "io"][kind]
    point["group"] = reader.text() if flags & 16 else None
    point["kind"] = reader.text() if flags & 32 else None
    return point, count


def instruction(reader, table, procedures, relocated):
    opcode = reader.u8()
    operand, form = table[opcode]
    value = reader.number(OPERAND_BYTES[operand], signed=operand == "disp")
    target = value if operand == "label" else None
    if operand == "-":
        value = None
    elif operand == "label":
        value = f"L{value}"
    elif operand == "proc":
        value = procedures[value]["name"]
    elif operand == "value":
        assert relocated is None or value == 0
        value = relocated or [["+", value]]
    return {"type": "instruction", "opcode": opcode, "form": form, "operand": value, "labels": []}, target


def decode(data, table):
    version, found = sections(data)
    signer = None
    if "SIGN" in found:
        assert found["SIGN"].u32() == 1
        signer = "ed25519:" + found["SIGN"].take(32).hex()
        found["SIGN"].take(64)
        found["SIGN"].finish()
    lines = [{"type": "header", "version": 1, "ppdf": version, "signer": signer, **head(found["HEAD"])}]
    routines = [probe(found["PROB"]) for _ in range(found["PROB"].u32())]
    found["PROB"].finish()
    procedures = []
    for _ in range(found["PROC"].u32()):
        procedures.append({"type": "procedure", "name": found["PROC"].text()})
        routines.append((procedures[-1], found["PROC"].u32()))
    found["PROC"].finish()
    relocations = {}
    for _ in range(found["RELO"].u32()):
        number = found["RELO"].u32()
        assert all(number > before for before in relocations)
        relocations[number] = found["RELO"].expression()
    found["RELO"].finish()
    places = found["LINE"]
    files = places.texts()

    def place(item):
        item["source"], item["line"] = files[places.u32()], places.u32()

    number = 0
    for routine, count in routines:
        place(routine)
        lines.append(routine)
        body = []
        targets = set()
        for _ in range(count):
            item, target = instruction(found["CODE"], table, procedures, relocations.pop(number, None))
            place(item)
            body.append(item)
            targets |= {target} - {None}
            number += 1
        for target in targets:
            body[target]["labels"] = [f"L{target}"]
        lines.extend(body)
    found["CODE"].finish()
    places.finish()
    assert not relocations, relocations
    return lines + [{"type": "end", "instructions": number, "exit": 0}]


def main():
    document, path = sys.argv[1:]
    with open(path, "rb") as file:
        data = file.read()
    for line in decode(data, opcodes(document)):
        print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
