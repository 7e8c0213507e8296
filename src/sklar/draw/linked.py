"""People and their events from a fitted two-level model, in blocks of people.

What a seed means: block b depends on the model, the seed, b and the number of people in it, and on nothing else.
People have the keys 1, 2, ..., and every event has the key of a person of its own block.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.draw.blocks import BLOCK_ROWS
from sklar.draw.decode import Decoder, record_schema
from sklar.fitting.classes import LinkedClasses
from sklar.kernel.cells import Cells
from sklar.public.events import Linked


def linked_columns(linked: Linked) -> tuple[pl.Schema, pl.Schema]:
    """Names and types of the columns of both released tables: the key, then the attributes."""
    return (
        pl.Schema({linked.people_key: pl.Int64(), **record_schema(linked.people)}),
        pl.Schema({linked.events_key: pl.Int64(), **record_schema(linked.events)}),
    )


class LinkedSampler:
    """Draws any block of people with their events, in any thread."""

    def __init__(self, classes: LinkedClasses, seed: int) -> None:
        self._seed, self._linked = seed, classes.linked
        linked = classes.linked
        self._n_classes, self._n_kinds = classes.event_class.shape
        self._person = _Levels(classes.person, linked.people.cells)
        self._number = _Levels(classes.number, Cells([linked.at_most + 1]))
        self._kind = _Levels(classes.event_class, Cells([self._n_kinds]))
        self._event = _Levels(classes.event.reshape(-1, classes.event.shape[-1]), linked.events.cells)
        self._decoders = Decoder(linked.people), Decoder(linked.events)

    def draw(self, block: tuple[int, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The people of a block, given as its number and its size, and their events."""
        number, people = block
        rng, values = (
            np.random.Generator(np.random.SFC64(np.random.SeedSequence([self._seed, number, stream])))
            for stream in (2, 3)
        )
        of_class = rng.integers(self._n_classes, size=people)
        codes = self._person.draw(of_class, rng)
        counts = self._number.draw(of_class, rng)[0]
        owner = np.repeat(np.arange(people), counts)
        of_kind = of_class[owner] * self._n_kinds + self._kind.draw(of_class[owner], rng)[0]
        events = self._event.draw(of_kind, rng)
        keys = number * BLOCK_ROWS + 1 + np.arange(people)
        drawn = self._decoders[0].decode(codes, values), self._decoders[1].decode(events, values)
        return (
            drawn[0].insert_column(0, pl.Series(self._linked.people_key, keys, dtype=pl.Int64)),
            drawn[1].insert_column(0, pl.Series(self._linked.events_key, keys[owner], dtype=pl.Int64)),
        )


class _Levels:
    """Levels of attributes by the class of a row. `chances` has shape (classes, levels of all attributes)."""

    def __init__(self, chances: NDArray[np.float32], cells: Cells) -> None:
        self._sizes = cells.sizes.tolist()
        self._steps = []
        for i in range(cells.n_attributes):
            upto = np.cumsum(chances[:, cells.levels(i)].astype(np.float64), axis=1)
            upto /= upto[:, -1:]
            # One increasing list for all classes: class c's chances lie between c and c + 1.
            self._steps.append((np.arange(len(upto))[:, None] + upto).ravel())

    def draw(self, of_class: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """One level of every attribute for each row, shape (attributes, rows)."""
        drawn = np.empty((len(self._sizes), of_class.size), dtype=np.int64)
        for i, (size, steps) in enumerate(zip(self._sizes, self._steps, strict=True)):
            found = np.searchsorted(steps, of_class + rng.random(of_class.size), side="right") - of_class * size
            # Rounding may lead past the last level.
            drawn[i] = np.clip(found, 0, size - 1)
        return drawn
