from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from sklar.files.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Sequenced,
    Struct,
    ThriftError,
    read_struct,
    varint,
    write_struct,
)

INTEGERS = st.sampled_from([(I16, 15), (I32, 31), (I64, 63)]).flatmap(
    lambda kind: st.tuples(st.just(kind[0]), st.integers(-(2 ** kind[1]), 2 ** kind[1] - 1))
)
SCALARS = (
    INTEGERS
    | st.binary(max_size=20).map(lambda value: (BINARY, value))
    | st.booleans().map(lambda value: (TRUE if value else FALSE, value))
    | st.integers(0, 255).map(lambda value: (BYTE, value))
    | st.floats(allow_nan=False).map(lambda value: (DOUBLE, value))
)


def nested(values: st.SearchStrategy[tuple[int, Any]]) -> st.SearchStrategy[tuple[int, Any]]:
    lists = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20).map(lambda own: (LIST, Sequenced(I64, own)))
    flags = st.lists(st.booleans(), max_size=20).map(lambda own: (LIST, Sequenced(TRUE, own)))
    fields = st.dictionaries(st.integers(1, 200), values, max_size=5)
    several = st.lists(fields, max_size=3).map(lambda own: (LIST, Sequenced(STRUCT, own)))
    return lists | flags | several | fields.map(lambda own: (STRUCT, own))


STRUCTS = st.dictionaries(st.integers(1, 200), st.recursive(SCALARS, nested, max_leaves=12), max_size=6)


@given(fields=STRUCTS, before=st.binary(max_size=3))
@settings(deadline=None)
def test_what_is_written_is_read(fields: Struct, before: bytes) -> None:
    data = before + write_struct(fields) + b"more"
    assert read_struct(data, len(before)) == (fields, len(data) - 4)


@given(data=st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_a_struct_or_an_error(data: bytes) -> None:
    try:
        _, end = read_struct(data)
    except ThriftError:
        return
    assert 0 < end <= len(data)


@given(fields=STRUCTS, data=st.data())
@settings(deadline=None)
def test_bytes_that_end_too_soon_are_an_error(fields: Struct, data: st.DataObject) -> None:
    whole = write_struct(fields)
    with pytest.raises(ThriftError):
        read_struct(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_structs_without_end_are_an_error() -> None:
    with pytest.raises(ThriftError, match="deeply"):
        read_struct(b"\x1c" * 100)


def test_the_footer_of_another_writer_is_the_same_when_written_again() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, None], "b": ["x", "y"], "c": [True, False], "d": [0.5, 1.5]}), sink)
    data = sink.getvalue().to_pybytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    fields, end = read_struct(footer)
    assert end == len(footer)
    assert fields[3] == (I64, 2)
    assert write_struct(fields) == footer


@given(fields=STRUCTS)
@settings(deadline=None)
def test_a_struct_inside_another_may_be_given_as_its_bytes(fields: Struct) -> None:
    given_as = [
        write_struct({1: (STRUCT, own), 2: (LIST, Sequenced(STRUCT, [own]))}) for own in (fields, write_struct(fields))
    ]
    assert given_as[0] == given_as[1]


def test_numbers_take_the_bytes_that_the_protocol_says() -> None:
    assert [varint(number).hex() for number in (0, 127, 128, 2**64 - 1)] == ["00", "7f", "8001", "ff" * 9 + "01"]
