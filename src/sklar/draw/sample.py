"""Any block of the rows of a model and a seed, here or on another machine, in any thread; of linked tables too."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sklar.draw.blocks import BLOCK_ROWS, Copula, Sampler, blocks, stream
from sklar.draw.course import CourseSampler, dealt_classes, level_drawer
from sklar.draw.decode import Decoder, Shape, decode_dummies, dummy_schema, record_schema
from sklar.draw.repair import RecordSampler
from sklar.errors import ModelError
from sklar.kernel.cells import Cells
from sklar.machine.extras import lazily

if TYPE_CHECKING:
    import polars as pl

    from sklar.draw.given import Condition
    from sklar.fitting.classes import LinkedClasses
    from sklar.public.events import Linked
else:
    pl = lazily("polars")


class BlockSampler:
    """Draws blocks of rows, under a `condition` those of the model given it; then shapes are of its divided bins."""

    def __init__(
        self,
        copula: Copula,
        seed: int,
        *,
        shapes: Mapping[str, Shape] | None = None,
        enums: bool = False,
        condition: Condition | None = None,
    ) -> None:
        self._seed, self._schema = seed, copula.schema.whole or copula.schema
        self._sampler: Sampler = RecordSampler(copula)
        if condition is not None:
            # Imported here: most rows are drawn without a condition.
            from sklar.draw.given import given_sampler

            self._schema, self._sampler = condition.schema, given_sampler(copula, condition)
        self._decoder = None if copula.dummies else Decoder(self._schema, shapes=shapes, enums=enums)
        self.columns = dummy_schema(self._schema) if self._decoder is None else self._decoder.columns

    def blocks(self, rows: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
        """Number and size of the blocks of this many rows, from block `first` up to and without `last`."""
        return blocks(rows, self._sampler.block_rows, first, last)

    def draw(self, block: tuple[int, int]) -> pl.DataFrame:
        """The rows of a block, given as its number and its size."""
        number, rows = block
        drawn = self._sampler.draw(self._seed, number, rows)
        if self._decoder is None:
            return decode_dummies(drawn.view(np.bool_), self._schema)
        # A stream of its own, so that where a value lies in its bin says nothing about the copula's draw.
        return self._decoder.decode(self._schema.complete(drawn), stream(self._seed, number, 1))


def check_draw(rows: int | None, seed: int | None) -> tuple[int | None, int]:
    """The number of rows to draw (None: as many as the original has) and a seed, fresh where none is given."""
    if rows is not None and (type(rows) is not int or rows < 1):
        raise ModelError(f"rows must be a whole number of at least 1, got {rows!r}.")
    if seed is None:
        seed = secrets.randbits(63)
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise ModelError(f"seed must be a whole number from 0 to 2**64 - 1, got {seed!r}.")
    return rows, seed


def linked_columns(linked: Linked) -> tuple[pl.Schema, pl.Schema]:
    """Names and types of the columns of both released tables: the key, then the attributes."""
    people, events = record_schema(linked.people), record_schema(linked.events)
    return pl.Schema({linked.people_key: pl.Int64(), **people}), pl.Schema({linked.events_key: pl.Int64(), **events})


class LinkedSampler:
    """Draws any block of people, with keys 1, 2, ..., and their events: a function of (model, seed, number, people)."""

    def __init__(self, classes: LinkedClasses, seed: int) -> None:
        linked = self._linked = classes.linked
        self._seed = seed
        self._n_classes, self._n_kinds = classes.event_class.shape
        self._person = level_drawer(classes.person, linked.people.cells)
        self._number = level_drawer(classes.number, Cells([linked.at_most + 1]))
        self._kind = level_drawer(classes.event_class, Cells([self._n_kinds]))
        self._event = level_drawer(classes.event.reshape(-1, classes.event.shape[-1]), linked.events.cells)
        self._decoders = Decoder(linked.people), Decoder(linked.events)
        self._course = None if classes.laws is None else CourseSampler(classes, classes.laws)

    def draw(self, block: tuple[int, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The people of a block, given as its number and its size, and their events, in order where they have one."""
        number, people = block
        rng, values = stream(self._seed, number, 2), stream(self._seed, number, 3)
        if self._course is None:
            of_class, shares = rng.integers(self._n_classes, size=people), None
        else:
            of_class, shares = dealt_classes(people, self._n_classes, rng)
        codes, counts = self._person(of_class, rng), self._number(of_class, rng, shares)[0]
        owner = np.repeat(np.arange(people), counts)
        course = None if self._course is None else self._course.draw(of_class, counts, rng)
        kinds = self._kind(of_class[owner], rng)[0] if course is None else course.kinds
        events = self._event(of_class[owner] * self._n_kinds + kinds, rng)
        for place, levels in () if course is None else course.levels:
            events[place] = levels
        keys = number * BLOCK_ROWS + 1 + np.arange(people)
        drawn = self._decoders[0].decode(codes, values), self._decoders[1].decode(events, values)
        if course is not None:
            drawn[1].replace_column(drawn[1].columns.index(self._linked.order), course.column)
        held = drawn[1].insert_column(0, pl.Series(self._linked.events_key, keys[owner], dtype=pl.Int64))
        if self._linked.unique:
            # Of events that may not be alike those after the first are left out. With strict times there are none.
            held = held.unique([self._linked.events_key, *self._linked.unique], keep="first", maintain_order=True)
        return drawn[0].insert_column(0, pl.Series(self._linked.people_key, keys, dtype=pl.Int64)), held
