"""Gradient descent on the logits of latent components: the loss against noisy tables, and the steps of a fit.

A step with c = d - m contrasts takes 4 D c^2 operations up to `SMALL` contrasts; beyond that it looks at one block of
b = `_BLOCK` rows of the residual, 6 D b c operations. Memory: the target, 4 c^2 bytes (in a file where that is much),
one strip of the residual and of its weights, and about 28 D d bytes of state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sklar.fitting.denoise import Targets
from sklar.fitting.steps import CompiledLogits, Logits, attribute_of_contrast, contrast_levels, contrast_tables
from sklar.fitting.threeway import PARTS, REST, ThreeWayLoss
from sklar.kernel.cells import Cells, Doubles, Floats
from sklar.kernel.queries import Tables

MARGIN_WEIGHT = 3.0
# A residual of z times its noise pulls 1 + min((z / STANDS_OUT)^2, MOST_PULL) times as hard, over the mean of that: a
# fit is stopped early for the sake of noise, and what is still far off then is none.
STANDS_OUT, MOST_PULL = 3.0, 3.0
# Up to this many contrasts a step looks at the whole residual, and compiles nothing (`benchmarks.start --crossover`);
# and as many of the residual's rows are held at a time.
SMALL = 256
# Beyond that, the rows of the residual that a step looks at.
_BLOCK = 128
# Logits of fits that are made side by side.
_TOGETHER = 32_768
_FLOOR = 1e-7
# Contrasts up to which the weights of all their pairs are held: 64 MB.
_HELD = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a fit begins: its components, the sd and the seed of their logits, and their damping (`Logits`)."""

    components: int = 150
    sd: float = 0.7
    damping: float = 0.01
    seed: int = 0


def start_logits(cells: Cells, first: Floats, **settings: Any) -> Logits:
    """Logits whose steps are compiled beyond `SMALL` contrasts."""
    return (Logits if cells.n_levels - cells.n_attributes <= SMALL else CompiledLogits)(cells, first, **settings)


class Fit:
    """A fit of a mixture in progress, or several from consecutive seeds side by side.

    `room` is free for work with the contrasts between steps, in the thread of the fit.
    """

    def __init__(self, loss: Loss, start: Start, *, fits: int = 1, until: int = 0) -> None:
        base = np.log(np.maximum(loss.levels, np.float32(_FLOOR)))
        seeds = [np.random.SeedSequence([start.seed + number, start.components]) for number in range(fits)]
        generators = [np.random.Generator(np.random.SFC64(seed)) for seed in seeds]
        shape = (start.components, base.size)
        first = np.hstack(
            [(base + np.float32(start.sd) * each.standard_normal(shape, dtype=np.float32)).T for each in generators]
        )
        self._loss, self._fits, self._generator = loss, fits, generators[0]
        self._logits = start_logits(loss.cells, first, damping=start.damping, fits=fits, until=until)
        self.contrasts, self.room = self._logits.contrasts, Room(loss.cells, first.shape[1], fits)
        self._blocks: list[int] = []
        self._add_three_way = None if loss.three is None else loss.three.pull(fits)
        self._share = np.full(start.components, 1 / start.components, dtype=np.float32)
        self._pull = np.empty_like(self.contrasts)

    @property
    def probabilities(self) -> Floats:
        """The present probabilities of levels in components, shape (d, D)."""
        return self._logits.probabilities

    def advance(self, steps: int) -> None:
        """Take this many steps."""
        loss, found, pull = self._loss, self.contrasts, self._pull
        for _ in range(steps):
            if len(found) <= SMALL:
                loss.whole_gradient(found, pull, self.room)
            else:
                if not self._blocks:
                    self._blocks = self._generator.permutation(-(-len(found) // _BLOCK)).tolist()
                loss.gradient(found, pull, self.room, self._blocks.pop())
            if self._add_three_way is not None:
                self._add_three_way(found, pull)
            margins = found.reshape(-1, self._fits, self._share.size) @ self._share
            self._logits.move(pull, loss.margin_weights[:, None] * (margins - loss.margins[:, None]))


def fits_together(cells: Cells, start: Start, fits: int) -> tuple[int, int | None]:
    """How many fits to make side by side, and by how many threads; None: as many as there are.

    As many as stay in a processor's cache. Their steps are so short that a second thread would wait for the GIL.
    """
    most = _TOGETHER // (start.components * cells.n_levels)
    if cells.n_levels - cells.n_attributes > SMALL or most < 1:
        return 1, None
    return min(most, fits), 1


class Loss:
    """Sum over cells of precision x (predicted - target)^2, each pair once, + 3 x mean precision x (margin error)^2.

    In contrasts (`steps`) that is the same sum over pairs of contrasts, and for each attribute A its margin error
    squared times 3 + the sum over the others of precision_AB / K_B: `margin_weights`, beside the targets `margins`.
    What was measured of three-way tables adds its part (`three`).
    """

    def __init__(
        self, targets: Targets, shrinkage: float, weights: CellWeights, three: ThreeWayLoss | None = None
    ) -> None:
        self.cells, self.three, self._weights = targets.cells, three, weights
        self.levels = targets.levels.astype(np.float32)
        self.margins = contrast_levels(targets.levels, self.cells)
        self.margin_weights = np.float32(MARGIN_WEIGHT) + margin_weights(self.cells, targets.precision)
        # The target times its weights.
        self._weighted = contrast_tables(targets.mixed(shrinkage), self.cells)
        for first in range(0, len(self._weighted), _BLOCK):
            self._weighted[first : first + _BLOCK] *= weights.rows(first, first + _BLOCK)
        if len(self._weighted) <= SMALL:
            sd = STANDS_OUT * np.sqrt(np.maximum(targets.noise, 1e-30) * weights.rows(0, len(self._weighted)))
            self._unit = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 0)
            self._ones = np.ones(sd.size, dtype=np.float32)

    def whole_gradient(self, found: Floats, pull: Floats, room: Room) -> None:
        """The gradient of the tables' part in the contrasts F, shape (d - m, D), times D / 2, into `pull`.

        It is R F, with R = weights (F F^T / D - target), for each fit by itself, what stands out of its noise pressed.
        """
        own, out = (
            each.reshape(len(found), room.fits, each.shape[1] // room.fits).swapaxes(0, 1) for each in (found, pull)
        )
        shape = (room.fits, len(found), len(found))
        residual = np.matmul(own, own.swapaxes(1, 2), out=room.strip.reshape(shape))
        residual *= np.float32(1 / own.shape[2])
        residual *= self._weights.rows(0, len(found))
        residual -= self._weighted
        if residual.size:
            self._press(residual, room.pressed.reshape(shape))
        np.matmul(residual, own, out=out)

    def _press(self, residual: Floats, factor: Floats) -> None:
        """Multiply weighted residuals, shape (fits, d - m, d - m), by how far they stand out of their noise.

        A residual r of weight w has noise of variance v / w, with v that of precision 1: so z = w r / sqrt(w v).
        """
        np.multiply(residual, self._unit, out=factor)
        np.square(factor, out=factor)
        np.minimum(factor, np.float32(MOST_PULL), out=factor)
        factor += 1
        for each, own in zip(residual, factor, strict=True):
            each *= own
            # A product with ones is the fastest sum.
            each *= np.float32(own.size / np.dot(own.ravel(), self._ones))

    def gradient(self, found: Floats, pull: Floats, room: Room, block: int) -> None:
        """The same, estimated without bias from one of N blocks S of rows of R.

        It is N / 2 (R_S F in the rows of S, plus R_S^T F_S in all): the mean of each over all blocks is R F / N.
        """
        c, components = found.shape
        first, last = block * _BLOCK, min((block + 1) * _BLOCK, c)
        residual = np.matmul(found[first:last], found.T, out=room.strip[: (last - first) * c].reshape(last - first, c))
        residual *= self._weights.rows(first, last)
        residual *= np.float32(1 / components)
        residual -= self._weighted[first:last]
        residual *= np.float32(-(-c // _BLOCK) / 2)
        np.matmul(residual.T, found[first:last], out=pull)
        pull[first:last] += np.matmul(residual, found, out=room.rows[first:last])


def step_operations(cells: Cells, start: Start, triples: Tables | None = None) -> float:
    """Multiplications and additions in one step of a fit."""
    contrasts = cells.n_levels - cells.n_attributes
    rows = 4.0 * contrasts if contrasts <= SMALL else 6.0 * _BLOCK
    three_way = 0.0 if triples is None else 6.0 / (PARTS * REST) * triples.n_cells
    return max(start.components * (contrasts * rows + three_way), 1.0)


class CellWeights:
    """The precision of the table of each pair of contrasts, shape (d - m, d - m); beyond `_HELD`, made row by row."""

    def __init__(self, cells: Cells, precision: Doubles) -> None:
        self._precision, self._attribute = precision.astype(np.float32), attribute_of_contrast(cells)
        size = self._attribute.size
        self._whole = None
        self._whole = self.rows(0, size) if size <= _HELD else None

    def rows(self, first: int, last: int) -> Floats:
        """Rows `first` up to `last`, shape (rows, d - m)."""
        if self._whole is not None:
            return self._whole[first:last]
        return self._precision[self._attribute[first:last][:, None], self._attribute]


def margin_weights(cells: Cells, precision: Doubles) -> Floats:
    """How much the squared error of each contrast of the margins weighs in the two-way tables, shape (d - m,)."""
    weights = (precision / cells.sizes).sum(axis=1)
    return np.asarray(weights[attribute_of_contrast(cells)], dtype=np.float32)


class Room:
    """Memory that a fit uses again in every step."""

    def __init__(self, cells: Cells, components: int, fits: int = 1) -> None:
        contrasts, self.fits = cells.n_levels - cells.n_attributes, fits
        self.strip = np.empty(fits * min(max(SMALL, _BLOCK), contrasts) * contrasts, dtype=np.float32)
        self.rows = np.empty((contrasts, components), dtype=np.float32)
        self.pressed = np.empty(fits * contrasts**2 if contrasts <= SMALL else 0, dtype=np.float32)


def predicted_strips(found: Floats, room: Room, firsts: Iterable[int]) -> Iterator[tuple[int, int, Floats]]:
    """The product of an array with its transpose in strips: (first row, last row, the strip from column `first` on).

    Strips begin at these rows, multiples of `SMALL`. Each is in the room until the next one is.
    """
    for first in firsts:
        last = min(first + SMALL, len(found))
        shape = (last - first, len(found) - first)
        strip = room.strip[: shape[0] * shape[1]].reshape(shape)
        yield first, last, np.matmul(found[first:last], found[first:].T, out=strip)
