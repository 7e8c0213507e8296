"""Rows by person: at most so many of each, chosen at random, wherever in a table they lie and in bounded memory.

A row's codes and the mark of its id go to one of `PARTS` parts, by the mark, so that all rows of a person are in one
part; then `kernel.people` chooses among the rows of each part. A mark is a keyed hash of the id, under a key that this
run draws and nobody keeps: 128 bits of CBC-MAC with AES-256 over the id's length and bytes, so that different ids share
a mark with a chance below 10^-19 for a billion of them.

Parts that do not fit in memory are temporary files without a name (where the system has such; else they lose it at
once), readable by this user alone: whatever ends the process, the system removes them. Their bytes are encrypted under
another key that only this process has. They lie in Python's temporary folder (TMPDIR), which should be on a disk.

The id of a row is the text of its value, as in a CSV file: 7, 7.0 and "7" are one person, "A1" and "a1 " are two.
Values that have no text (lists, records) are together one person. Nulls and empty texts are no ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from os import urandom
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import UUID

import numpy as np
import polars as pl
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.kernel.people import choose_rows
from sklar.machine.threads import in_order
from sklar.public.person import Person
from sklar.public.schema import Attribute, Schema
from sklar.rows.counts import Counts
from sklar.rows.encode import encode
from sklar.rows.fast import count
from sklar.rows.values import is_nothing, opaque, readable_text

# From batches without their ids to codes, shape (m, rows).
Encode = Callable[[pl.DataFrame], NDArray[np.integer[Any]]]
Records = NDArray[np.void]

PARTS = 64
HELD_BYTES = 1 << 27
_CHUNK_BYTES = 1 << 24
_BLOCK = 16
# The length of an id stands before its bytes: then no id's blocks begin another's.
_LENGTH = 8
_NO_TEXT = "(not a value)"


def count_people(
    batches: Iterable[pl.DataFrame], schema: Schema, person: Person, *, rows: int, held_bytes: int = HELD_BYTES
) -> Counts:
    """Exact counts of the rows that are chosen. The batches' columns are the schema's attributes, then the ids.

    What is chosen is counted in batches of so many `rows`. Beyond `held_bytes`, rows go through files.
    """
    narrow = np.int16 if int(schema.sizes.max()) < 2**15 else np.int32

    def coded(batch: pl.DataFrame) -> NDArray[np.integer[Any]]:
        return encode(batch, schema).astype(narrow)

    names = schema.names

    def frames() -> Iterator[pl.DataFrame]:
        for codes in choose(batches, person, coded, held_bytes=held_bytes):
            for first in range(0, codes.shape[1], rows):
                yield pl.DataFrame(dict(zip(names, codes[:, first : first + rows], strict=True)))

    return count(frames(), of_codes(schema))


def of_codes(schema: Schema) -> Schema:
    """A schema whose values are the codes of another. A code below 0 is outside of the edges: it stands in no cell."""
    attributes = [
        Attribute(name=each.name, kind="integer", edges=tuple(range(each.n_levels + 1)), outside="missing")
        for each in schema.attributes
    ]
    return Schema(name=schema.name, attributes=tuple(attributes))


def choose(
    batches: Iterable[pl.DataFrame], person: Person, encode: Encode, *, held_bytes: int = HELD_BYTES
) -> Iterator[NDArray[np.integer[Any]]]:
    """The codes of the rows that are chosen, shape (m, rows), in any order. The batches' last columns are the ids."""
    mark = Marker()

    def prepare(batch: pl.DataFrame) -> Records:
        ids = ids_of(batch.to_series(batch.width - 1))
        codes = encode(batch.select(pl.nth(range(batch.width - 1))))
        kind = [("mark", "<u8", 2), ("key", "<u8"), ("codes", codes.dtype, len(codes))]
        records: Records = np.empty(batch.height, dtype=kind)
        records["mark"], records["codes"] = mark(ids), codes.T
        records["key"] = np.frombuffer(urandom(8 * batch.height), dtype="<u8")
        none = ids.is_null().to_numpy()
        if person.null_ids == "drop":
            return np.asarray(records[~none])
        # A mark of its own for every row without an id: each is a person.
        records["mark"][none] = np.frombuffer(urandom(_BLOCK * int(none.sum())), dtype="<u8").reshape(-1, 2)
        return records

    with ExitStack() as stack:
        held: list[Records] = []
        parts: Parts | None = None
        for records in in_order(prepare, batches):
            held.append(records)
            if sum(each.nbytes for each in held) > held_bytes:
                parts = parts or stack.enter_context(Parts(records.dtype))
                parts.add(held)
                held.clear()
        if parts is None:
            if held:
                yield _chosen([held], person.rows_per_person)
            return
        parts.add(held)
        held.clear()
        for part in range(PARTS):
            yield _chosen(([chunk] for chunk in parts.read(part)), person.rows_per_person)


def chosen_places(batches: Iterable[pl.DataFrame], person: Person) -> NDArray[np.bool_]:
    """Which rows of a table are chosen, in its order, for whoever reads it twice. The batches hold the ids alone."""
    rows = 0

    def numbered() -> Iterator[pl.DataFrame]:
        nonlocal rows
        for batch in batches:
            yield batch.select(pl.int_range(rows, rows + batch.height).alias("number"), pl.first().alias("id"))
            rows += batch.height

    places = [codes[0].copy() for codes in choose(numbered(), person, lambda batch: batch.to_numpy().T)]
    kept = np.zeros(rows, dtype=bool)
    kept[np.concatenate([np.empty(0, dtype=np.int64), *places])] = True
    return kept


def _chosen(pieces: Iterable[list[Records]], most: int) -> NDArray[np.integer[Any]]:
    """The codes of the rows that are chosen of one part, which comes in pieces.

    Pieces wait until they are as many as what was kept before: then no row is sorted many times, and of a person with
    millions of rows only few are held.
    """
    kept: list[Records] = []
    waiting: list[Records] = []

    def settle() -> None:
        records = np.concatenate([*kept, *waiting])
        kept[:], waiting[:] = [records[choose_rows(records["mark"], records["key"], most)]], []

    for piece in pieces:
        waiting += piece
        if sum(map(len, waiting)) >= sum(map(len, kept)):
            settle()
    if waiting:
        settle()
    return kept[0]["codes"].T


class Marker:
    """Marks of ids under a key, shape (ids, 2): equal for equal ids, else different.

    The key is its own, unless several processes must mark alike (`rows.gather`): then one of them draws it for all.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._cipher = Cipher(AES256(key or urandom(32)), ECB())  # noqa: S305

    def __call__(self, ids: pl.Series) -> NDArray[np.uint64]:
        """The marks of these bytes; a null is marked as the empty text is."""
        encryptor = self._cipher.encryptor()
        values = ids.fill_null(b"").to_list()
        sizes = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        # One byte more, so that there is always one to take.
        starts, flat = np.cumsum(sizes) - sizes, np.frombuffer(b"".join([*values, b"\0"]), dtype=np.uint8)
        blocks = -(-(sizes + _LENGTH) // _BLOCK)
        marks = np.empty((len(values), 2), dtype=np.uint64)
        for most in np.unique(blocks).tolist():
            rows = np.flatnonzero(blocks == most)
            within = np.arange(most * _BLOCK - _LENGTH)
            for some in np.array_split(rows, 1 + rows.size * within.size // _CHUNK_BYTES):
                padded = np.zeros((some.size, most * _BLOCK), dtype=np.uint8)
                padded[:, :_LENGTH] = sizes[some].astype("<u8").view(np.uint8).reshape(-1, _LENGTH)
                held = flat.take(starts[some, None] + within, mode="clip")
                padded[:, _LENGTH:] = np.where(within < sizes[some, None], held, 0)
                state = np.zeros((some.size, _BLOCK), dtype=np.uint8)
                for first in range(0, most * _BLOCK, _BLOCK):
                    mixed = state ^ padded[:, first : first + _BLOCK]
                    state = np.frombuffer(encryptor.update(mixed.tobytes()), dtype=np.uint8).reshape(-1, _BLOCK)
                marks[some] = state.view("<u8")
        return marks


def ids_of(column: pl.Series) -> pl.Series:
    """The ids of a column as bytes, null where there is none. Never raises, whatever the column holds."""
    kind = column.dtype
    if kind == pl.Null:
        return pl.Series(column.name, [None] * len(column), dtype=pl.Binary)
    if opaque(kind):
        texts = pl.select(pl.when(column.is_not_null()).then(pl.lit(_NO_TEXT))).to_series()
    elif kind == pl.Object:
        texts = pl.Series([_text(value) for value in column], dtype=pl.String)
    elif kind.is_float() or kind.is_decimal():
        texts = (column.fill_nan(None) if kind.is_float() else column).cast(pl.String).str.replace(r"\.0+$", "")
    elif kind == pl.Binary:
        texts = column
    else:
        # Moments as numbers: Python's calendar ends before theirs.
        texts = (column.to_physical() if kind.is_temporal() else column).cast(pl.String)
    ids = texts.cast(pl.Binary)
    return ids.to_frame("id").select(pl.when(pl.col("id").bin.size() > 0).then(pl.col("id"))).to_series()


def _text(value: object) -> str | None:
    if is_nothing(value):
        return None
    if isinstance(value, UUID):
        return str(value)
    text = readable_text(value)
    return _NO_TEXT if text is None else text


class Parts:
    """Temporary files of records, by their marks: without names, encrypted, gone with the process."""

    def __init__(self, kind: np.dtype[Any]) -> None:
        self._kind, self._key, self._held = kind, urandom(32), ExitStack()
        self._files: list[IO[bytes]] = []
        self._encryptors = [self._cipher(part).encryptor() for part in range(PARTS)]

    def __enter__(self) -> Parts:
        with _room():
            self._files = [self._held.enter_context(_file()) for _ in range(PARTS)]
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def _cipher(self, part: int) -> Cipher[CTR]:
        # Parts share a key and never a counter: each has 2^64 blocks of its own.
        return Cipher(AES256(self._key), CTR(part.to_bytes(8) + bytes(8)))

    def add(self, pieces: Iterable[Records]) -> None:
        """Put records where their marks say."""
        for records in pieces:
            place = (records["mark"][:, 0] >> np.uint64(64 - PARTS.bit_length() + 1)).astype(np.uint8)
            order = np.argsort(place, kind="stable")
            ends = np.cumsum(np.bincount(place, minlength=PARTS)).tolist()
            ordered = records[order]
            with _room():
                for part, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
                    self._files[part].write(self._encryptors[part].update(ordered[first:last].tobytes()))

    def read(self, part: int) -> Iterator[Records]:
        """The records of one part, in pieces."""
        file, decryptor = self._files[part], self._cipher(part).decryptor()
        size = self._kind.itemsize * max(_CHUNK_BYTES // self._kind.itemsize, 1)
        with _room():
            file.seek(0)
        yield np.empty(0, dtype=self._kind)
        while chunk := _read(file, size, decryptor):
            yield np.frombuffer(chunk, dtype=self._kind)


def _file() -> IO[bytes]:
    return TemporaryFile(prefix="sklar-")


def _read(file: IO[bytes], size: int, decryptor: CipherContext) -> bytes:
    with _room():
        return decryptor.update(file.read(size))


@contextmanager
def _room() -> Iterator[None]:
    """What the system says of a temporary file becomes one sentence."""
    try:
        yield
    except OSError:
        raise DataError(
            "the rows of people go through temporary files, for which there is no room or no permission. Set TMPDIR to "
            "a folder on a disk with as much room as the table takes. Nothing was released."
        ) from None
