"""Gradient descent on the logits of latent components: the loss against noisy tables, and the steps of a fit.

Cost of a step with c = d - m contrasts: up to `SMALL` contrasts 4 D c^2 operations, for the product of a (c, D) matrix
with its transpose and of the residual with it. Beyond that a step looks at one block of b = `_BLOCK` rows of the
residual, 6 D b c operations. Memory: the target, 4 c^2 bytes (in a file where that is much), one strip of the residual
and of its weights, and about 28 D d bytes of state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sklar.fitting.denoise import Targets
from sklar.fitting.margins import Doubles, Floats
from sklar.fitting.steps import (
    MOMENTUM,
    SECOND_MOMENT,
    CompiledSteps,
    Steps,
    attribute_of_contrast,
    contrast_levels,
    contrast_tables,
)
from sklar.fitting.threeway import ThreeWayLoss, three_way_operations
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Tables

MARGIN_WEIGHT = 3.0
# A residual of z times its noise pulls 1 + min((z / STANDS_OUT)^2, MOST_PULL) times as hard, over the mean of that: a
# fit is stopped early for the sake of noise, and what is still far off then is none.
STANDS_OUT, MOST_PULL = 3.0, 3.0
# A step of the first size, falling as 1 / (1 + steps / DECAY).
RATE = 0.2
DECAY = 1_000.0
# The share of a fit's steps, the last ones, over which the rate falls to nothing: fits that still swing from step to
# step come to rest.
COOL = 0.1
# Up to this many contrasts a step looks at the whole residual, and compiles nothing (`python -m benchmarks.start
# --crossover`); and as many of the residual's rows are held at a time.
SMALL = 256
# Beyond that, the rows of the residual that a step looks at.
_BLOCK = 128
# Logits of fits that are made side by side.
_TOGETHER = 32_768
# Steps after which logits are centered.
_CENTERED = 16
_FLOOR = 1e-7
# Contrasts up to which the weights of all their pairs are held: 64 MB.
_HELD = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a fit begins: its components, and the sd and the seed of their logits.

    `damping` is what is added to a logit's own rms gradient before its step is divided by it, of the rms of all.
    """

    components: int = 150
    sd: float = 0.7
    damping: float = 0.01
    seed: int = 0


class Logits:
    """Logits of levels in components, and the probabilities and contrasts that they give; `move` takes a step.

    It is Adam (Kingma and Ba 2015), damped: a logit's step is its gradient, averaged over steps, over its own rms plus
    `damping` times the rms of all. Rare levels so learn as fast as common ones, while those that the tables say nothing
    of hardly move. The rate falls with the number of steps alone, so that stopping early, which regularizes, needs no
    plan of how long to fit; where it is known that a fit ends after `until` steps, it comes to rest in the last ones.

    `first` has shape (d, D): the components of several `fits`, one fit after the other, as if each were alone.
    `contrasts` are those of the present probabilities, shape (d - m, D).
    """

    def __init__(
        self, cells: Cells, first: Floats, *, damping: float, fits: int = 1, until: int = 0, rate: float = RATE
    ) -> None:
        contrasts = cells.n_levels - cells.n_attributes
        self._work = Steps(cells, first.shape[1], fits) if contrasts <= SMALL else CompiledSteps(cells)
        self._logits = np.ascontiguousarray(first[self._work.order])
        self._probabilities, self._gradient = np.empty_like(self._logits), np.empty_like(self._logits)
        self.contrasts = np.empty((contrasts, first.shape[1]), dtype=np.float32)
        # Fading sums of each gradient and of its square; the mean of the latter over each fit; the number of steps.
        self._velocity, self._squares = np.zeros_like(self._logits), np.zeros_like(self._logits)
        self._moments, self._steps = np.zeros(fits), 0
        self._damping, self._until, self._rate = damping, until, rate
        self._predict()

    @property
    def probabilities(self) -> Floats:
        """The present probabilities of levels in components, shape (d, D)."""
        found = np.empty_like(self._probabilities)
        found[self._work.order] = self._probabilities
        return found

    def _predict(self) -> None:
        # In a step no logit moves by more than 2.4 rates, so that in between all stay near.
        if self._steps % _CENTERED == 0:
            self._work.center(self._logits)
        self._work.softmax(self._logits, self._probabilities, self.contrasts)

    def move(self, pull: Floats, constant: Floats) -> None:
        """Move against the gradient in the contrasts, pull + constant, shapes (d - m, D) and (d - m, fits)."""
        sizes = self._work.through_softmax(pull, constant, self._probabilities, self._gradient)
        sizes = sizes * (sizes.size / max(self._gradient.size, 1))
        self._moments += (1 - SECOND_MOMENT) * (sizes - self._moments)
        self._steps += 1
        # Running means begin at zero: as much is missing of them.
        damping = self._damping * np.sqrt(np.maximum(self._moments / (1 - SECOND_MOMENT**self._steps), 1e-30))
        # What makes means of fading sums.
        mean, mean_square = (((1 - fade) / (1 - fade**self._steps)) for fade in (MOMENTUM, SECOND_MOMENT))
        rate = self._rate / (1 + self._steps / DECAY) * mean
        if self._until:
            rate *= min(1.0, (self._until - self._steps + 1) / (COOL * self._until))
        self._work.move(self._logits, self._velocity, self._squares, self._gradient, (rate, mean_square), damping)
        self._predict()


class Fit:
    """A fit of a mixture in progress, or several from seeds one after the other, side by side.

    Side by side, NumPy spends its time on numbers even where the table is very small. `room` is free for work with the
    contrasts between steps, in the thread of the fit.
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
        self._logits = Logits(loss.cells, first, damping=start.damping, fits=fits, until=until)
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


def _is_short(cells: Cells, components: int) -> bool:
    """Whether a step of so many components, in NumPy, stays in a processor's cache."""
    return cells.n_levels - cells.n_attributes <= SMALL and components * cells.n_levels <= _TOGETHER


def threads_for(cells: Cells, start: Start) -> int | None:
    """By how many threads fits are best made; None: as many as there are.

    By one where steps in NumPy are so short that threads would wait for the GIL: two are no faster then, and take half
    as much processor time again.
    """
    return 1 if _is_short(cells, start.components) else None


def fits_together(cells: Cells, start: Start, fits: int) -> int:
    """How many of these fits are best made side by side: as many as stay in a processor's cache."""
    return max((some for some in range(1, fits + 1) if _is_short(cells, some * start.components)), default=1)


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
        """Of the tables' part of the loss in the contrasts F of Pi, shape (d - m, D), times D / 2, into `pull`.

        It is R F, with R = weights (F F^T / D - target), for each fit by itself, and what stands out of its noise in R
        times as much (`_press`).
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

        It is N / 2 (R_S F in the rows of S, plus R_S^T F_S in all). Over all blocks, each of the two has the mean
        R F / N.
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
    return max(start.components * (contrasts * rows + three_way_operations(triples)), 1.0)


class CellWeights:
    """The precision of the table that each pair of contrasts belongs to, an array of shape (d - m, d - m).

    Beyond `_HELD` contrasts its rows are made when they are asked for: whole, it would take as much as the target.
    """

    def __init__(self, cells: Cells, precision: Doubles) -> None:
        self._precision, self._attribute = precision.astype(np.float32), attribute_of_contrast(cells)
        self._whole = self._made(slice(None)) if self._attribute.size <= _HELD else None

    def _made(self, rows: slice) -> Floats:
        return self._precision[self._attribute[rows][:, None], self._attribute]

    def rows(self, first: int, last: int) -> Floats:
        """Rows `first` up to `last`, shape (rows, d - m)."""
        rows = slice(first, last)
        return self._made(rows) if self._whole is None else self._whole[rows]


def margin_weights(cells: Cells, precision: Doubles) -> Floats:
    """How much the squared error of each contrast of the margins weighs in the two-way tables, shape (d - m,)."""
    weights = (precision / cells.sizes).sum(axis=1)
    return np.asarray(weights[attribute_of_contrast(cells)], dtype=np.float32)


class Room:
    """Memory that a fit uses again in every step: taking it anew costs as much as a tenth of the step."""

    def __init__(self, cells: Cells, components: int, fits: int = 1) -> None:
        contrasts, self.fits = cells.n_levels - cells.n_attributes, fits
        self.strip = np.empty(fits * min(max(SMALL, _BLOCK), contrasts) * contrasts, dtype=np.float32)
        self.rows = np.empty((contrasts, components), dtype=np.float32)
        self.pressed = np.empty(fits * contrasts**2 if contrasts <= SMALL else 0, dtype=np.float32)


def predicted_strips(found: Floats, room: Room, firsts: Iterable[int]) -> Iterator[tuple[int, int, Floats]]:
    """The product of an array with its transpose in strips: (first row, last row, the strip from column `first` on).

    It is symmetric, so that a strip need not begin before its own rows; and large domains need no second such array.
    A strip is in the room until the next one is. They begin at these rows, multiples of `SMALL`.
    """
    for first in firsts:
        last = min(first + SMALL, len(found))
        shape = (last - first, len(found) - first)
        strip = room.strip[: shape[0] * shape[1]].reshape(shape)
        yield first, last, np.matmul(found[first:last], found[first:].T, out=strip)
