"""A table of people and a table of events, read and put together by their keys.

A person is a key of the table of people, with the first row that has it; a row without a key is a person of their own,
without events. An event whose key no person has is left out: by rule, and without a word to anyone but the custodian
(`custodian.keys`). Of those who have more events than the schema says, so many are chosen at random, with fresh
randomness of the operating system. So whatever one person's rows are, they decide nothing about anyone else's part.

Keys are compared as texts: 7, 7.0 and "7" are one key, "007" is another. No value raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.public.events import Linked
from sklar.public.schema import Schema
from sklar.rows.encode import encode
from sklar.rows.read import open_source
from sklar.rows.source import Source, require_columns
from sklar.rows.values import distinct, opaque, readable_text

# Whole numbers below this are held exactly by floats.
_EXACT = 2**53
# Events that are worked on at a time.
_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joined:
    """Codes of people and of their events: private.

    `people` has shape (attributes, n) and `events` (attributes, N). The events of person i stand from `begins[i]` up to
    `begins[i + 1]`. `unmatched` events had the key of nobody, `beyond` were left out of those who had too many, and
    `repeated` rows of people had the key of an earlier row.
    """

    people: NDArray[np.int16]
    events: NDArray[np.int16]
    begins: NDArray[np.int64]
    unmatched: int
    beyond: int
    repeated: int

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print codes.
        return "Joined(private)"

    @property
    def n_people(self) -> int:
        """How many people there are."""
        return self.begins.size - 1

    @property
    def numbers(self) -> NDArray[np.int64]:
        """How many events each person has, shape (n,)."""
        return np.diff(self.begins)

    def parts(self) -> Iterator[tuple[int, int]]:
        """The first and last person of parts of the people that have about as many events each."""
        first = 0
        while first < self.n_people:
            last = int(np.searchsorted(self.begins, self.begins[first] + _AT_ONCE, side="right")) - 1
            last = min(max(last, first + 1), first + _AT_ONCE, self.n_people)
            yield first, last
            first = last


class LinkedRows:
    """Both tables, refused where one lacks a column. No row is read before `join`."""

    def __init__(self, people: object, events: object, linked: Linked) -> None:
        self._linked = linked
        self._people = _open(people, linked.people, linked.people_key, "people")
        self._events = _open(events, linked.events, linked.events_key, "events")

    def join(self) -> Joined:
        """Codes of all people with those of their events."""
        linked = self._linked
        keys, people = _read(self._people, linked.people, linked.people_key)
        first = _first_rows(keys)
        kept = np.sort(first.get_column("row").to_numpy())
        # One place more, at -1, for events whose key nobody has.
        number = np.full(len(keys) + 1, -1, dtype=np.int64)
        number[kept] = np.arange(kept.size)
        keys_of_events, events = _read(self._events, linked.events, linked.events_key)
        owner = number[_owners(first, keys_of_events)]
        matched = np.flatnonzero(owner >= 0)
        chosen = matched[np.argsort(owner[matched], kind="stable")]
        chosen, beyond = _at_most(chosen, owner[chosen], linked.at_most, kept.size)
        begins = np.concatenate([[0], np.cumsum(np.bincount(owner[chosen], minlength=kept.size))])
        return Joined(
            people=people[:, kept],
            events=events[:, chosen],
            begins=begins.astype(np.int64),
            unmatched=int(owner.size - matched.size),
            beyond=beyond,
            repeated=int(len(keys) - kept.size),
        )


def _open(data: object, schema: Schema, key: str, part: str) -> Source:
    source = open_source(data, schema)
    require_columns(source, schema)
    if key not in source.columns:
        raise DataError(
            f"{source.name} has no column '{key}', which [{part}] names as its key. Correct the key, or the file."
        )
    return source


def _read(source: Source, schema: Schema, key: str) -> tuple[pl.Series, NDArray[np.int16]]:
    """Keys and codes of a table, in its order. At most 20,000 levels: two bytes hold every code."""
    keys = [pl.Series([], dtype=pl.String)]
    codes = [np.empty((schema.n_attributes, 0), dtype=np.int16)]
    for batch in source.batches((key, *schema.names)):
        keys.append(key_texts(batch.to_series(0)))
        codes.append(encode(batch.select(pl.nth(range(1, batch.width))), schema).astype(np.int16))
    return pl.concat([column.alias("key") for column in keys]), np.concatenate(codes, axis=1)


def key_texts(column: pl.Series) -> pl.Series:
    """Keys as texts, null where there is none. No value raises.

    >>> key_texts(pl.Series([7.0, None, 2.5])).to_list(), key_texts(pl.Series(["7", "", "007"])).to_list()
    (['7', None, '2.5'], ['7', None, '007'])
    """
    kind = column.dtype
    if kind == pl.Null or opaque(kind):
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(column))
    if kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum):
        texts = column.cast(pl.String)
    elif kind.is_float():
        frame = column.to_frame("key")
        whole = (pl.col("key") == pl.col("key").round()) & (pl.col("key").abs() < _EXACT)
        plain = pl.when(whole).then(pl.col("key").cast(pl.Int64, strict=False).cast(pl.String))
        texts = frame.select(plain.otherwise(pl.col("key").fill_nan(None).cast(pl.String))).to_series()
    else:
        values, places = distinct(column)
        known = pl.Series([*(readable_text(value) for value in values), None], dtype=pl.String)
        texts = known.gather(places)
    # An empty text is no key.
    return texts.to_frame("key").select(pl.when(pl.col("key") != "").then(pl.col("key"))).to_series()


def _first_rows(keys: pl.Series) -> pl.DataFrame:
    """Every key with the first row that has it, and every row without a key."""
    rows = keys.to_frame("key").with_row_index("row")
    known = rows.filter(pl.col("key").is_not_null()).unique("key", keep="first", maintain_order=True)
    return pl.concat([known, rows.filter(pl.col("key").is_null())])


def _owners(first: pl.DataFrame, keys: pl.Series) -> NDArray[np.int64]:
    """The row of the person whose event it is, -1 where there is none, shape (events,)."""
    known = first.filter(pl.col("key").is_not_null())
    found = keys.to_frame("key").join(known, on="key", how="left", maintain_order="left")
    return found.get_column("row").cast(pl.Int64).fill_null(-1).to_numpy()


def _at_most(
    chosen: NDArray[np.int64], owner: NDArray[np.int64], most: int, n_people: int
) -> tuple[NDArray[np.int64], int]:
    """Of the events of those who have more than `most`, so many at random; and how many were left out."""
    numbers = np.bincount(owner, minlength=n_people)
    crowded = numbers[owner] > most
    if not crowded.any():
        return chosen, 0
    places = np.flatnonzero(crowded)
    random = np.frombuffer(os.urandom(8 * places.size), dtype=np.uint64)
    order = np.lexsort((random, owner[places]))
    of_owner = owner[places][order]
    rank = np.arange(places.size) - np.searchsorted(of_owner, of_owner, side="left")
    kept = ~crowded
    kept[places[order[rank < most]]] = True
    return chosen[kept], int(chosen.size - np.count_nonzero(kept))
