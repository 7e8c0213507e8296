"""Gradient descent on the logits of latent components: the loss against noisy tables, and the steps of a fit.

Cost of a step with c = d - m contrasts (m where all attributes are binary): up to `SMALL` contrasts the product of a
(c, D) matrix with its transpose, and of the residual with it, 4 D c^2 operations. Beyond that a step looks at one block
of b = `_BLOCK` rows of the residual, 6 D b c operations. Memory: the target, 4 c^2 bytes (in a file where that is
much), one strip of the residual and of its weights, and about 28 D d bytes of state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklar.budget.views import Triples
from sklar.fitting.denoise import Targets
from sklar.fitting.steps import (
    MOMENTUM,
    SECOND_MOMENT,
    CompiledSteps,
    PlainSteps,
    Steps,
    attribute_of_contrast,
    contrast_levels,
    contrast_tables,
)
from sklar.fitting.threeway import ThreeWayLoss, three_way_operations
from sklar.kernel.cells import Cells

LatentKind = Literal["mixture", "factor"]

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
# Steps after which the logits of a mixture are centered.
_CENTERED = 16
_FLOOR = 1e-7
# Contrasts up to which the weights of all their pairs are held: 64 MB.
_HELD = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a fit begins: its parametrization, components, the sd of the start, rank (factor only) and seed.

    `damping` is what is added to a logit's own rms gradient before its step is divided by it, of the rms of all.
    """

    kind: LatentKind = "mixture"
    components: int = 150
    sd: float = 0.7
    damping: float = 0.01
    rank: int = 32
    seed: int = 0


class _Goal(NamedTuple):
    """What a fit descends to: tables and margins in contrasts, and their weights.

    `weighted` holds the target times its weights, both of shape (d - m, d - m).
    """

    weighted: NDArray[np.float32]
    weights: CellWeights
    margins: NDArray[np.float32]
    margin_weights: NDArray[np.float32]


class Fit:
    """A fit in progress: `advance` moves the logits against the gradient.

    It is Adam (Kingma and Ba 2015), damped: a logit's step is its gradient, averaged over steps, over its own rms plus
    a share of the rms of all. Rare levels so learn as fast as common ones, while those that the tables say nothing
    of hardly move. The rate falls with the number of steps alone, so that stopping early, which regularizes, needs no
    plan of how long to fit; where it is known that a fit ends after `until` steps, it comes to rest in the last ones.

    `contrasts` is the present Pi in contrasts, transposed, shape (d - m, D). `room` is free for work with them between
    steps, in the thread of the fit.

    Several `fits` of a mixture are made side by side, from seeds one after the other, as if each were alone: D is the
    number of their components together. NumPy then spends its time on numbers, even where the table is very small.
    """

    def __init__(self, loss: Loss, start: Start, *, fits: int = 1, until: int = 0) -> None:
        self._loss, self._fits, self._until, self._damping = loss, fits, until, start.damping
        base = np.log(np.maximum(loss.levels, np.float32(_FLOOR)))
        starts = [_started(replace(start, seed=start.seed + number), base) for number in range(fits)]
        self._generator, _, self._design = starts[0]
        # The logits are these times the design, or these themselves where it is empty.
        d, components = base.size, fits * start.components
        self._small = d - loss.cells.n_attributes <= SMALL
        self._work: Steps = PlainSteps(loss.cells, components, fits) if self._small else CompiledSteps(loss.cells)
        together = np.hstack([parameters for _, parameters, _ in starts])
        self._parameters = np.ascontiguousarray(together[self._work.order])
        self.room = Room(loss.cells, components, fits)
        self._blocks: list[int] = []
        self._add_three_way = None if loss.three is None else loss.three.pull(fits)
        self._probabilities = np.empty((d, components), dtype=np.float32)
        self.contrasts = np.empty_like(self.room.rows)
        # Fading sums of each gradient and of its square; the mean of the latter over each fit; the number of steps.
        self._velocity, self._squares = np.zeros_like(self._parameters), np.zeros_like(self._parameters)
        self._moments, self._steps = np.zeros(fits), 0
        self._share = np.full(start.components, 1 / start.components, dtype=np.float32)
        # Room to work in: the tables' part of the gradient, and the gradient in the logits.
        self._pull, self._logits = np.empty_like(self.contrasts), np.empty_like(self._probabilities)
        self._predict()

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """The present Pi, transposed, shape (d, D)."""
        found = np.empty_like(self._probabilities)
        found[self._work.order] = self._probabilities
        return found

    def _predict(self) -> None:
        logits = self._parameters
        if self._design.size:
            logits = np.matmul(self._parameters, self._design.T, out=self._logits)
            self._work.center(logits)
        elif self._steps % _CENTERED == 0:
            # In a step no logit moves by more than 2.4 rates, so that in between all stay near.
            self._work.center(logits)
        self._work.softmax(logits, self._probabilities, self.contrasts)

    def advance(self, steps: int) -> None:
        """Take this many steps."""
        for _ in range(steps):
            if self._small:
                self._loss.whole_gradient(self.contrasts, self._pull, self.room)
            else:
                if not self._blocks:
                    self._blocks = self._generator.permutation(-(-len(self.contrasts) // _BLOCK)).tolist()
                self._loss.gradient(self.contrasts, self._pull, self.room, self._blocks.pop())
            if self._add_three_way is not None:
                self._add_three_way(self.contrasts, self._pull)
            self._descend()

    def _descend(self) -> None:
        """Move the parameters against the gradient, and predict again."""
        goal, gradient = self._loss.goal, self._logits
        margins = self.contrasts.reshape(-1, self._fits, self._share.size) @ self._share
        constant = goal.margin_weights[:, None] * (margins - goal.margins[:, None])
        sizes = self._work.through_softmax(self._pull, constant, self._probabilities, gradient)
        if self._design.size:
            gradient = gradient @ self._design
            sizes = np.array([np.vdot(gradient, gradient)])
        self._moments += (1 - SECOND_MOMENT) * (sizes * (self._fits / max(gradient.size, 1)) - self._moments)
        self._steps += 1
        # Running means begin at zero: as much is missing of them.
        damping = self._damping * np.sqrt(np.maximum(self._moments / (1 - SECOND_MOMENT**self._steps), 1e-30))
        # What makes means of fading sums.
        mean, mean_square = (((1 - fade) / (1 - fade**self._steps)) for fade in (MOMENTUM, SECOND_MOMENT))
        rate = RATE / (1 + self._steps / DECAY) * mean
        if self._until:
            rate *= min(1.0, (self._until - self._steps + 1) / (COOL * self._until))
        self._work.move(self._parameters, self._velocity, self._squares, gradient, (rate, mean_square), damping)
        self._predict()


def _started(
    start: Start, base: NDArray[np.float32]
) -> tuple[np.random.Generator, NDArray[np.float32], NDArray[np.float32]]:
    """The generator, the first parameters, shape (d, ...), and the design of a fit around these logits."""
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([start.seed, start.components])))
    if start.kind == "mixture":
        drawn = generator.standard_normal((start.components, base.size), dtype=np.float32)
        # The logits of a mixture are the parameters.
        design = np.empty((start.components, 0), dtype=np.float32)
        return generator, (base + np.float32(start.sd) * drawn).T, design
    latent = _balanced_normals(generator, start.components, start.rank)
    design = np.ascontiguousarray(np.hstack([np.ones((start.components, 1), np.float32), latent]))
    loadings = generator.standard_normal((start.rank, base.size), dtype=np.float32)
    return generator, np.vstack([base, np.float32(start.sd * start.rank**-0.5) * loadings]).T, design


def threads_for(cells: Cells, start: Start) -> int | None:
    """By how many threads fits are best made; None: as many as there are.

    By one where steps in NumPy are so short that threads spend their time on Python's lock: two are no faster then, and
    take half as much processor time again.
    """
    small = cells.n_levels - cells.n_attributes <= SMALL and start.components * cells.n_levels <= _TOGETHER
    return 1 if small else None


def fits_together(cells: Cells, start: Start, fits: int) -> int:
    """How many of these fits are best made side by side: as many as stay in a processor's cache."""
    if start.kind != "mixture" or cells.n_levels - cells.n_attributes > SMALL:
        return 1
    return max(1, min(fits, _TOGETHER // (start.components * cells.n_levels)))


class Loss:
    """Sum over cells of precision x (predicted - target)^2, each pair once, + 3 x mean precision x (margin error)^2.

    In contrasts (see `contrasts`) that is the same sum over pairs of contrasts, and for each attribute A its margin
    error squared times 3 + the sum over the others of precision_AB / K_B. What was measured of three-way tables adds
    its part (`three`).
    """

    def __init__(
        self, targets: Targets, shrinkage: float, weights: CellWeights, three: ThreeWayLoss | None = None
    ) -> None:
        self.cells, self.three = targets.cells, three
        self.levels = targets.levels.astype(np.float32)
        weighted = contrast_tables(targets.mixed(shrinkage), self.cells)
        for first in range(0, len(weighted), _BLOCK):
            weighted[first : first + _BLOCK] *= weights.rows(first, first + _BLOCK)
        if len(weighted) <= SMALL:
            sd = STANDS_OUT * np.sqrt(np.maximum(targets.noise, 1e-30) * weights.rows(0, len(weighted)))
            self._unit = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 0)
            self._ones = np.ones(sd.size, dtype=np.float32)
        self.goal = _Goal(
            weighted=weighted,
            weights=weights,
            margins=contrast_levels(targets.levels, self.cells),
            margin_weights=np.float32(MARGIN_WEIGHT) + margin_weights(self.cells, targets.precision),
        )

    def whole_gradient(self, found: NDArray[np.float32], pull: NDArray[np.float32], room: Room) -> None:
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
        residual *= self.goal.weights.rows(0, len(found))
        residual -= self.goal.weighted
        if residual.size:
            self._press(residual, room.pressed.reshape(shape))
        np.matmul(residual, own, out=out)

    def _press(self, residual: NDArray[np.float32], factor: NDArray[np.float32]) -> None:
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

    def gradient(self, found: NDArray[np.float32], pull: NDArray[np.float32], room: Room, block: int) -> None:
        """The same, estimated without bias from one of N blocks S of rows of R.

        It is N / 2 (R_S F in the rows of S, plus R_S^T F_S in all). Over all blocks, each of the two has the mean
        R F / N.
        """
        c, components = found.shape
        first, last = block * _BLOCK, min((block + 1) * _BLOCK, c)
        residual = np.matmul(found[first:last], found.T, out=room.strip[: (last - first) * c].reshape(last - first, c))
        residual *= self.goal.weights.rows(first, last)
        residual *= np.float32(1 / components)
        residual -= self.goal.weighted[first:last]
        residual *= np.float32(-(-c // _BLOCK) / 2)
        np.matmul(residual.T, found[first:last], out=pull)
        pull[first:last] += np.matmul(residual, found, out=room.rows[first:last])


def step_operations(cells: Cells, start: Start, triples: Triples | None = None) -> float:
    """Multiplications and additions in one step of a fit."""
    contrasts = cells.n_levels - cells.n_attributes
    rows = 4.0 * contrasts if contrasts <= SMALL else 6.0 * _BLOCK
    return max(start.components * (contrasts * rows + three_way_operations(triples)), 1.0)


class CellWeights:
    """The precision of the table that each pair of contrasts belongs to, an array of shape (d - m, d - m).

    Beyond `_HELD` contrasts its rows are made when they are asked for: whole, it would take as much as the target.
    """

    def __init__(self, cells: Cells, precision: NDArray[np.float64]) -> None:
        self._precision, self._attribute = precision.astype(np.float32), attribute_of_contrast(cells)
        self._whole = self._made(slice(None)) if self._attribute.size <= _HELD else None

    def _made(self, rows: slice) -> NDArray[np.float32]:
        return self._precision[self._attribute[rows][:, None], self._attribute]

    def rows(self, first: int, last: int) -> NDArray[np.float32]:
        """Rows `first` up to `last`, shape (rows, d - m)."""
        rows = slice(first, last)
        return self._made(rows) if self._whole is None else self._whole[rows]


def margin_weights(cells: Cells, precision: NDArray[np.float64]) -> NDArray[np.float32]:
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


def predicted_strips(
    found: NDArray[np.float32], room: Room, firsts: Iterable[int]
) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
    """The product of an array with its transpose in strips: (first row, last row, the strip from column `first` on).

    It is symmetric, so that a strip need not begin before its own rows; and large domains need no second such array.
    A strip is in the room until the next one is. They begin at these rows, multiples of `SMALL`.
    """
    for first in firsts:
        last = min(first + SMALL, len(found))
        shape = (last - first, len(found) - first)
        strip = room.strip[: shape[0] * shape[1]].reshape(shape)
        yield first, last, np.matmul(found[first:last], found[first:].T, out=strip)


def _balanced_normals(generator: np.random.Generator, rows: int, rank: int) -> NDArray[np.float32]:
    """Standard normals with mean exactly zero and, where rows allow, covariance exactly the identity."""
    half = generator.standard_normal((rows // 2, rank))
    drawn = np.concatenate([half, -half, np.zeros((rows % 2, rank))])
    covariance = drawn.T @ drawn / rows
    if rows >= 4 * rank:
        drawn = np.linalg.solve(np.linalg.cholesky(covariance), drawn.T).T
    return drawn.astype(np.float32)
