"""How numbers lie inside their bins, and to what they are rounded: `fitting.density` makes it from noisy tables."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Doubles, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rounding:
    """To what numbers are rounded, by how many digits they have.

    In grains: `steps`, shape (s,), are what they may be multiples of, each a multiple of the one before it, and `kept`
    numbers that are common as they are. `upto`, shape (digits, s), are cumulative chances of the steps.
    """

    grain: Fraction
    steps: Ints
    upto: Doubles
    kept: Ints

    def round(
        self, units: Ints, low: Ints, high: Ints, generator: np.random.Generator
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Numbers of grains rounded down within their bins, from `low` up to but without `high`; and which were."""
        digits = np.zeros(units.size, dtype=np.int64)
        if self.upto.shape[0] > 1:
            digits = np.searchsorted(10 ** np.arange(19, dtype=np.int64), np.abs(units), side="right")
            digits = np.minimum(digits, self.upto.shape[0] - 1)
        chosen = (generator.random(units.size)[:, None] >= self.upto[digits]).sum(axis=1)
        if self.kept.size:
            chosen[np.isin(units, self.kept)] = 0
        done, rounded = np.zeros(units.size, dtype=np.bool_), units.copy()
        for index in range(1, self.steps.size):
            rows = np.flatnonzero(chosen == index)
            step = int(self.steps[index])
            first = -(-low[rows] // step) * step
            kept = rows[first < high[rows]]
            rounded[kept] = np.maximum(units[kept] // step * step, first[first < high[rows]])
            done[kept] = True
        return rounded, done


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """How the numbers of one attribute lie inside its bins.

    `bins`, shape (b,), says for each bin from which one its numbers are drawn: another one where noise alone filled it.
    `places` are numbers on the axis and `heights` what the distribution function reaches there: the number of the bin,
    from 0 on, and the share of the bin's rows below. Both ascend, shape (k,); between them the function is straight.
    """

    bins: Ints
    heights: Doubles
    places: Doubles
    rounding: Rounding | None = None

    def draw(self, bins: NDArray[np.integer[Any]], generator: np.random.Generator) -> Doubles:
        """A number on the axis in each of these bins; rounding errors may put it on an edge."""
        return np.interp(bins + generator.random(bins.size), self.heights, self.places)

    def divided(self, edges: Doubles, finer: Doubles) -> tuple[Shape, Doubles]:
        """The shape of finer bins, whose edges hold all of the shape's, and the share that each has of its whole bin.

        Every number is then drawn inside its own bin, also where noise alone filled it.
        """
        within = np.searchsorted(edges, finer[:-1], side="right") - 1
        places, heights, shares = [], [], np.empty(finer.size - 1)
        for index, (bin_, low, high) in enumerate(zip(within, finer[:-1], finer[1:], strict=True)):
            own = (self.places >= edges[bin_]) & (self.places <= edges[bin_ + 1])
            own &= (self.heights >= bin_) & (self.heights <= bin_ + 1)
            at = np.unique(
                np.concatenate([[low], self.places[own & (self.places > low) & (self.places < high)], [high]])
            )
            reached = np.interp(at, self.places[own], self.heights[own] - bin_)
            reached[at <= edges[bin_]], reached[at >= edges[bin_ + 1]] = 0.0, 1.0
            share = shares[index] = reached[-1] - reached[0]
            places.append(at if share > 0 else np.array([low, high]))
            heights.append(index + ((reached - reached[0]) / share if share > 0 else np.array([0.0, 1.0])))
        shape = Shape(
            bins=np.arange(shares.size),
            heights=np.concatenate(heights),
            places=np.concatenate(places),
            rounding=self.rounding,
        )
        return shape, shares
