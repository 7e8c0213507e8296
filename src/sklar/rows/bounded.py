"""Rows by person: at most so many of each, chosen at random, wherever in a table they lie and in bounded memory.

Which rows count is decided once per release, here, and by `kernel.people` alone. A row's record (what is counted of it,
the mark of its id, a random key) goes to a bucket by its mark, where it meets all rows of its person; those with the
smallest keys are chosen. Marks and keys come from ciphers under `Secrets`, drawn from the operating system for a
release and not kept. So every pass and every repeated task chooses the same rows: else tables of one release could hold
different rows of a person, more than are paid for.

A mark is 128 bits of CBC-MAC with AES-256 over two blocks: the id's bytes and its length, or a keyed hash of a longer
id. Different ids share one with a chance below 10^-19 for a billion of them. A key is a cipher's image of where the row
stands (the number of its part, and its own in it), or, of tables that may come in another order each time, of its
content and its number among equal rows of the part. Keys of different rows are as good as independent and uniform.

The id of a row is the text of its value, as in a CSV file: 7, 7.0 and "7" are one person, "A1" and "a1 " are two.
Values that have no text (lists, records) are together one person. Nulls and empty texts are no ids.

On one machine, buckets that do not fit in memory are temporary files without a name (or that lose it at once), for this
user alone, encrypted under a key of this process: the system removes them however the process ends. They lie in
Python's temporary folder (TMPDIR), best on a disk.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from os import urandom
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import polars as pl
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.kernel.people import choose_rows
from sklar.machine.threads import in_order
from sklar.machine.wording import failing, said
from sklar.public.settings import Person
from sklar.rows.encode import id_texts

# From batches without their ids to what is counted of each row.
Prepare = Callable[[pl.DataFrame], pl.DataFrame]
# A batch, and two words for each of its rows.
Placed = tuple[pl.DataFrame, NDArray[np.uint64]]

BUCKETS = 64
# Records that wait at most before they are chosen among, in bytes.
HELD_BYTES = 1 << 26
# Ids up to this length are in their marks as they are.
_LONGEST = 31
MARKS, KEY = ("_mark_0", "_mark_1"), "_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The secrets from which marks and keys of one release are made: private."""

    ids: bytes = field(repr=False, default_factory=lambda: urandom(32))
    rows: bytes = field(repr=False, default_factory=lambda: urandom(32))
    nobody: bytes = field(repr=False, default_factory=lambda: urandom(32))


def placed(batches: Iterable[pl.DataFrame], number: int, *, by_content: bool = False) -> Iterator[Placed]:
    """The batches of the part of this number, with two words for each row that make it known in every pass."""
    rows, equal = 0, Counter[int]()
    for batch in batches:
        place = np.empty((batch.height, 2), dtype="<u8")
        place[:, 0], place[:, 1] = number, np.arange(rows, rows + batch.height)
        if by_content:
            hashes = batch.select(pl.exclude(pl.Object)).hash_rows()
            place[:, 0] = hashes.to_numpy()
            for row, value in enumerate(hashes.to_list()):
                place[row, 1] = number << 40 | equal[value]
                equal[value] += 1
        rows += batch.height
        yield batch, place


def records_of(batches: Iterable[Placed], person: Person, prepare: Prepare, secrets: Secrets) -> Iterator[pl.DataFrame]:
    """The records of these rows, batch by batch. The batches' last columns are the ids."""

    def made(given: Placed) -> pl.DataFrame:
        batch, place = given
        ids = ids_of(batch.to_series(batch.width - 1))
        none, marks = ids.is_null().to_numpy(), marks_of(ids, secrets.ids).copy()
        # A mark of its own for every row without an id: each is a person.
        marks[none] = _enciphered(secrets.nobody, place)[none]
        records = prepare(batch.select(pl.nth(range(batch.width - 1)))).with_columns(
            *(pl.Series(name, column) for name, column in zip(MARKS, marks.T.copy(), strict=True)),
            pl.Series(KEY, _enciphered(secrets.rows, place)[:, 0].copy()),
        )
        return records.filter(pl.Series(~none)) if person.null_ids == "drop" else records

    return in_order(made, batches)


def reduced(records: Iterable[pl.DataFrame], most: int) -> Iterator[pl.DataFrame]:
    """The same records without those that cannot be chosen, for whoever sends them: few of a person with many."""
    held: list[pl.DataFrame] = []
    for frame in records:
        held.append(frame)
        if sum(each.estimated_size() for each in held) > HELD_BYTES:
            yield _smallest(held, most)
            held = []
    if held:
        yield _smallest(held, most)


def _enciphered(secret: bytes, blocks: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.uint64]:
    """Two words for each block of 16 bytes, shape (rows, 2): a cipher's image of it."""
    cipher = Cipher(AES256(secret), ECB()).encryptor()  # noqa: S305
    return np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").reshape(-1, 2)


def by_bucket(records: pl.DataFrame, buckets: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """The records of each bucket that has some."""
    marked = records.with_columns(_bucket=pl.col(MARKS[0]) % buckets)
    for (bucket,), own in marked.partition_by("_bucket", include_key=False, as_dict=True).items():
        yield int(bucket), own


def choose(records: Iterable[pl.DataFrame], most: int) -> pl.DataFrame | None:
    """What is counted of the rows that are chosen in one bucket, whatever the order of its records; None of none.

    Records wait until they are as many as what was kept before: then no row is sorted many times, and of a person with
    millions of rows only few are held.
    """
    held: list[pl.DataFrame] = []
    for frame in records:
        held.append(frame)
        if sum(each.height for each in held[1:]) > held[0].height:
            held = [_smallest(held, most)]
    return _smallest(held, most).drop(*MARKS, KEY) if held else None


def _smallest(frames: list[pl.DataFrame], most: int) -> pl.DataFrame:
    records = pl.concat(frames)
    marks = np.stack([records[name].to_numpy() for name in MARKS], axis=1)
    return records[choose_rows(marks, records[KEY].to_numpy(), most)]


def bucketed(records: Iterable[pl.DataFrame]) -> Iterator[Iterable[pl.DataFrame]]:
    """All records, those of one person together. Beyond `HELD_BYTES` they go through files."""
    held: list[pl.DataFrame] = []
    files: Buckets | None = None
    with ExitStack() as stack:
        for frame in records:
            held.append(frame)
            if sum(each.estimated_size() for each in held) > 2 * HELD_BYTES:
                files = files or stack.enter_context(Buckets())
                files.add(held)
                held = []
        if files is not None:
            files.add(held)
        yield from [held] if files is None else map(files.read, range(BUCKETS))


def choose_here(records: Iterable[pl.DataFrame], most: int) -> Iterator[pl.DataFrame]:
    """What is counted of the rows that are chosen, of all records."""
    yield from (chosen for own in bucketed(records) if (chosen := choose(own, most)) is not None)


def chosen_places(batches: Iterable[pl.DataFrame], person: Person) -> NDArray[np.bool_]:
    """Which rows of a table are chosen, in its order, for whoever reads it twice. The batches hold the ids alone."""
    rows = 0

    def numbered() -> Iterator[pl.DataFrame]:
        nonlocal rows
        for batch in batches:
            yield batch.select(pl.int_range(rows, rows + batch.height).alias("number"), pl.first().alias("id"))
            rows += batch.height

    records = records_of(placed(numbered(), 0), person, lambda batch: batch, Secrets())
    places = [chosen["number"].to_numpy() for chosen in choose_here(records, person.rows_per_person)]
    kept = np.zeros(rows, dtype=bool)
    kept[np.concatenate([np.empty(0, dtype=np.int64), *places])] = True
    return kept


def marks_of(ids: pl.Series, key: bytes) -> NDArray[np.uint64]:
    """Marks of ids under a key, shape (ids, 2): equal for equal ids, else different; of a null that of no bytes."""
    values = ids.fill_null(b"").to_list()
    blocks = np.empty((len(values), 32), dtype=np.uint8)
    # The length makes ids different that end in different numbers of zeros. A hash has one that no short id has.
    blocks[:, _LONGEST] = [min(len(value), _LONGEST + 1) for value in values]
    short = [v if len(v) <= _LONGEST else blake2b(v, key=key, digest_size=_LONGEST).digest() for v in values]
    blocks[:, :_LONGEST] = np.array(short, dtype=f"S{_LONGEST}").view(np.uint8).reshape(-1, _LONGEST)
    first = _enciphered(key, blocks[:, :16])
    return _enciphered(key, first ^ np.ascontiguousarray(blocks[:, 16:]).view("<u8"))


def ids_of(column: pl.Series) -> pl.Series:
    """The ids of a column as bytes, null where there is none. Never raises, whatever the column holds."""
    ids = column if column.dtype == pl.Binary else id_texts(column).cast(pl.Binary)
    return ids.to_frame("id").select(pl.when(pl.col("id").bin.size() > 0).then(pl.col("id"))).to_series()


class Buckets(ExitStack):
    """Temporary files of records, by their marks: without names, encrypted, gone with the process."""

    def __init__(self) -> None:
        super().__init__()
        key = urandom(32)
        # Files share a key and never a counter: each has 2^64 blocks of its own.
        self._ciphers = [Cipher(AES256(key), CTR(bucket.to_bytes(8) + bytes(8))) for bucket in range(BUCKETS)]
        self._encryptors = [cipher.encryptor() for cipher in self._ciphers]
        with failing(DataError, said("rows.no_room"), OSError):
            self._files = [self.enter_context(TemporaryFile(prefix="sklar-")) for _ in range(BUCKETS)]  # noqa: SIM115

    def add(self, records: list[pl.DataFrame]) -> None:
        """Put records where their marks say."""
        # Those of linked tables have columns of their own.
        alike = groupby(sorted(records, key=lambda frame: frame.columns), key=lambda frame: frame.columns)
        with failing(DataError, said("rows.no_room"), OSError):
            for bucket, frame in (each for _, own in alike for each in by_bucket(pl.concat(own), BUCKETS)):
                data = packed(frame)
                self._files[bucket].write(self._encryptors[bucket].update(len(data).to_bytes(8) + data))

    def read(self, bucket: int) -> Iterator[pl.DataFrame]:
        """The records of one bucket, in pieces."""
        file, decryptor = self._files[bucket], self._ciphers[bucket].decryptor()
        with failing(DataError, said("rows.no_room"), OSError):
            file.seek(0)
            while size := decryptor.update(file.read(8)):
                yield pl.read_ipc(decryptor.update(file.read(int.from_bytes(size))))


def packed(frame: pl.DataFrame) -> bytes:
    """A frame as bytes, to be sent or kept: for `pl.read_ipc`."""
    file = io.BytesIO()
    frame.write_ipc(file, compression="lz4")
    return file.getvalue()
