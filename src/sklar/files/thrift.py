"""Thrift's compact protocol, as far as Parquet's footers and page headers use it.

A struct is a dictionary from field numbers to (type, value), whatever the fields mean, so that what is read and written
again is the same to the last field. Values are ints, bools, floats, bytes, structs and `Sequenced` lists of one type.
Where a struct is to be written, its bytes will do.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_DEEPEST = 32

Struct = dict[int, tuple[int, Any]]


class ThriftError(ValueError):
    """Bytes that are no struct of the compact protocol."""


@dataclass(slots=True)
class Sequenced:
    """A list of values of one type."""

    type: int
    values: list[Any] = field(default_factory=list)


def read_struct(data: bytes | memoryview, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins at byte `at`, and the byte after its end.

    Raises ThriftError where the bytes are no struct, or end too soon.
    """
    reader = _Reader(data, at)
    try:
        found = reader.struct(0)
    except (IndexError, struct.error):
        raise ThriftError("the bytes end inside a struct.") from None
    return found, reader.at


def write_struct(fields: Struct) -> bytes:
    """The bytes of a struct.

    >>> read_struct(write_struct({1: (I32, -5), 20: (BINARY, b"name"), 21: (TRUE, True)}))[0]
    {1: (5, -5), 20: (8, b'name'), 21: (1, True)}
    """
    out = bytearray()
    _put_struct(out, fields)
    return bytes(out)


def varint(number: int) -> bytes:
    """A number that is not negative, seven bits to a byte, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    _put_varint(out, number)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes | memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ThriftError("a number has more than 64 bits.")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def taken(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise ThriftError("the bytes end inside a text.")
        self.at += size
        return bytes(self._data[self.at - size : self.at])

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ThriftError("structs are nested too deeply.")
        fields: Struct = {}
        number = 0
        while (head := self.byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            kind = head & 0x0F
            fields[number] = (kind, kind == TRUE if kind <= FALSE else self.value(kind, depth))
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind == BINARY:
            return self.taken(self.varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self.sequence(depth)
        if kind == BYTE:
            return self.byte()
        if kind == DOUBLE:
            return struct.unpack("<d", self.taken(8))[0]
        raise ThriftError(f"values of type {kind} are not used in Parquet.")

    def sequence(self, depth: int) -> Sequenced:
        head = self.byte()
        kind, size = head & 0x0F, head >> 4
        if size == 15:
            size = self.varint()
        # Every value takes a byte at least.
        if size > len(self._data) - self.at:
            raise ThriftError("the bytes end inside a list.")
        if kind in (TRUE, FALSE):
            return Sequenced(kind, [self.byte() == TRUE for _ in range(size)])
        return Sequenced(kind, [self.value(kind, depth + 1) for _ in range(size)])


def _put_varint(out: bytearray, number: int) -> None:
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _put_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind <= FALSE:
            kind = TRUE if value else FALSE
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _put_varint(out, number << 1 ^ number >> 63)
        if kind > FALSE:
            _put_value(out, kind, value)
        before = number
    out.append(0)


def _put_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == STRUCT and isinstance(value, bytes):
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, SET):
        size = len(value.values)
        out.append((size if size < 15 else 15) << 4 | value.type)
        if size >= 15:
            _put_varint(out, size)
        for each in value.values:
            if value.type in (TRUE, FALSE):
                out.append(TRUE if each else FALSE)
            else:
                _put_value(out, value.type, each)
    elif kind == BYTE:
        out.append(value)
    elif kind == DOUBLE:
        out += struct.pack("<d", value)
    else:
        raise ThriftError(f"values of type {kind} are not used in Parquet.")
