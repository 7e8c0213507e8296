"""Rows of people that lie in many parts of a table: they meet by the marks of their ids, and are chosen there.

What `rows.people` does in one process, for many: a part's rows become records (mark, key, values), which go to the
bucket of their mark; there `kernel.people` chooses. A task that is repeated must choose the same rows: else tables of
one release could hold different rows of a person, and more than are paid for. So marks and keys are made by ciphers
from the id, and from the number of the part and of the row in it, under secrets that one process draws from the
operating system, for one pass, and nobody keeps. Keys of different rows are as good as independent and uniform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from os import urandom

import numpy as np
import polars as pl
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from sklar.kernel.people import choose_rows
from sklar.public.person import Person
from sklar.rows.people import Marker, ids_of
from sklar.rows.sums import Piece, packed, unpacked

# From batches without their ids to the values that are wanted of each row.
Prepare = Callable[[pl.DataFrame], pl.DataFrame]

# Records that wait at most before they are chosen among and sent, in bytes.
HELD_BYTES = 1 << 26
_MARKS, _KEY = ("_mark_0", "_mark_1"), "_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What marks and keys of one pass are made with: private."""

    ids: bytes = field(repr=False, default_factory=lambda: urandom(32))
    rows: bytes = field(repr=False, default_factory=lambda: urandom(32))
    nobody: bytes = field(repr=False, default_factory=lambda: urandom(32))


def send_people(
    batches: Iterable[pl.DataFrame], person: Person, prepare: Prepare, secrets: Secrets, number: int, buckets: int
) -> Iterator[Piece]:
    """The records of part `number` that may be chosen, to the buckets of their marks. The last columns are the ids."""
    mark = Marker(secrets.ids)
    held: list[pl.DataFrame] = []
    rows = sent = 0
    for batch in batches:
        ids = ids_of(batch.to_series(batch.width - 1))
        none = ids.is_null().to_numpy()
        marks = mark(ids)
        # A mark of its own for every row without an id: each is a person.
        marks[none] = words_of(secrets.nobody, number, rows, batch.height)[none]
        keys = words_of(secrets.rows, number, rows, batch.height)[:, 0]
        rows += batch.height
        records = prepare(batch.select(pl.nth(range(batch.width - 1)))).with_columns(
            *(pl.Series(name, column) for name, column in zip(_MARKS, marks.T.copy(), strict=True)),
            pl.Series(_KEY, keys.copy()),
        )
        held.append(records.filter(pl.Series(~none)) if person.null_ids == "drop" else records)
        if sum(frame.estimated_size() for frame in held) > HELD_BYTES:
            yield from _pieces(_chosen(held, person.rows_per_person), number, sent, buckets)
            held, sent = [], sent + 1
    if held:
        yield from _pieces(_chosen(held, person.rows_per_person), number, sent, buckets)


def words_of(secret: bytes, number: int, first: int, rows: int) -> NDArray[np.uint64]:
    """Two words for each row of a part, from its number on: a cipher's image of both numbers, shape (rows, 2)."""
    blocks = np.empty((rows, 2), dtype="<u8")
    blocks[:, 0], blocks[:, 1] = number, np.arange(first, first + rows)
    cipher = Cipher(AES256(secret), ECB()).encryptor()  # noqa: S305
    return np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").reshape(rows, 2)


def _pieces(records: pl.DataFrame, number: int, sent: int, buckets: int) -> Iterator[Piece]:
    place = records[_MARKS[0]].to_numpy() % np.uint64(buckets)
    for bucket in np.unique(place).tolist():
        # A number for every piece: a part sends several to a bucket.
        yield bucket, number << 32 | sent, packed(records.filter(pl.Series(place == bucket)))


def choose_people(pieces: Iterable[Piece], person: Person) -> dict[int, pl.DataFrame]:
    """The values of the rows that are chosen in each bucket that came here, whatever the order of its pieces.

    Pieces wait until they are as many as what was kept before: then no row is sorted many times, and of a person with
    millions of rows only few are held.
    """
    kept: dict[int, list[pl.DataFrame]] = {}
    seen: set[tuple[int, int]] = set()
    for bucket, number, data in pieces:
        if (bucket, number) in seen:
            continue
        seen.add((bucket, number))
        held = kept.setdefault(bucket, [])
        held.append(unpacked(data))
        if sum(frame.height for frame in held[1:]) > held[0].height:
            held[:] = [_chosen(held, person.rows_per_person)]
    return {bucket: _chosen(held, person.rows_per_person).drop(*_MARKS, _KEY) for bucket, held in kept.items()}


def _chosen(frames: list[pl.DataFrame], most: int) -> pl.DataFrame:
    records = pl.concat(frames)
    marks = np.stack([records[name].to_numpy() for name in _MARKS], axis=1)
    return records[choose_rows(marks, records[_KEY].to_numpy(), most)]
