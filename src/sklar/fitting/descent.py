"""Gradient descent on the logits of latent components: the loss against noisy tables, and the steps of a fit.

Cost of a step with c = d - m contrasts (m where all attributes are binary): up to `SMALL` contrasts the product of a
(c, D) matrix with its transpose, and of the residual with it, 4 D c^2 operations. Beyond that a step looks at one block
of b = `_BLOCK` rows of the residual, 6 D b c operations. Memory: the target and its weights, 8 c^2 bytes, one strip of
the residual, and about 28 D d bytes of state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.fitting.contrasts import (
    OFFSETS,
    attribute_of_contrast,
    contrast_levels,
    contrast_tables,
    softmax,
    through_softmax,
)
from sklar.fitting.denoise import Targets
from sklar.fitting.trios import Trios
from sklar.kernel.cells import Cells

LatentKind = Literal["mixture", "factor"]

MARGIN_WEIGHT = 3.0
# A step of the first size, falling as 1 / (1 + steps / DECAY).
RATE = 0.2
DECAY = 400.0
# Of the rms gradient, what is added to a logit's own before its step is divided by it.
DAMPING = 0.03
_MOMENTUM = 0.9
_SECOND_MOMENT = 0.99
# Up to this many contrasts a step looks at the whole residual; and as many of its rows are held at a time.
SMALL = 256
# Beyond that, the rows of the residual that a step looks at.
_BLOCK = 128
_FLOOR = 1e-7
_ROW, _SQUARE = numba.float32[::1], numba.float32[:, ::1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a fit begins: its parametrization, components, the sd of the start, rank (factor only) and seed."""

    kind: LatentKind = "mixture"
    components: int = 150
    sd: float = 1.0
    rank: int = 32
    seed: int = 0


class _Goal(NamedTuple):
    """What a fit descends to, as compiled code takes it: tables and margins in contrasts, and their weights.

    `weighted` holds the target times its weights, both of shape (d - m, d - m).
    """

    weighted: NDArray[np.float32]
    weights: NDArray[np.float32]
    margins: NDArray[np.float32]
    margin_weights: NDArray[np.float32]
    offsets: NDArray[np.int64]


class _State(NamedTuple):
    """Where a fit stands, as compiled code takes it: arrays that every step overwrites.

    `probabilities` have shape (d, D) and `contrasts` (d - m, D). The logits are `parameters` @ `design`^T, or the
    parameters themselves where the design is empty. `squares` are running means of each squared gradient, and `moment`
    holds their mean and the number of steps. `pull` is the tables' part of the gradient; `square`, `logits` and
    `slopes` are room to work in.
    """

    probabilities: NDArray[np.float32]
    contrasts: NDArray[np.float32]
    design: NDArray[np.float32]
    parameters: NDArray[np.float32]
    velocity: NDArray[np.float32]
    squares: NDArray[np.float32]
    moment: NDArray[np.float64]
    pull: NDArray[np.float32]
    square: NDArray[np.float32]
    logits: NDArray[np.float32]
    slopes: NDArray[np.float32]


_GOAL = numba.types.NamedTuple((_SQUARE, _SQUARE, _ROW, _ROW, OFFSETS), _Goal)  # type: ignore[no-untyped-call]
_STATE = numba.types.NamedTuple(  # type: ignore[no-untyped-call]
    (*[_SQUARE] * 6, numba.float64[::1], *[_SQUARE] * 4), _State
)


class Fit:
    """A fit in progress: `advance` moves the logits against the gradient.

    It is Adam (Kingma and Ba 2015), damped: a logit's step is its gradient, averaged over steps, over its own rms plus
    `DAMPING` of the rms of all. Rare levels so learn as fast as common ones, while those that the tables say nothing
    of hardly move. The rate falls with the number of steps alone, so that stopping early, which regularizes, needs no
    plan of how long to fit.

    `probabilities` is the present Pi, transposed, shape (d, D), and `contrasts` the same in contrasts, (d - m, D).
    `room` is free for work with them between steps, in the thread of the fit.
    """

    def __init__(self, loss: Loss, start: Start) -> None:
        self._loss = loss
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([start.seed, start.components])))
        base = np.log(np.maximum(loss.levels, np.float32(_FLOOR)))
        d, components = base.size, start.components
        # The logits of a mixture are the parameters.
        design = np.empty((components, 0), dtype=np.float32)
        if start.kind == "mixture":
            drawn = generator.standard_normal((components, d), dtype=np.float32)
            parameters = np.ascontiguousarray((base + np.float32(start.sd) * drawn).T)
        else:
            latent = _balanced_normals(generator, components, start.rank)
            design = np.ascontiguousarray(np.hstack([np.ones((components, 1), np.float32), latent]))
            loadings = generator.standard_normal((start.rank, d), dtype=np.float32)
            parameters = np.vstack([base, np.float32(start.sd * start.rank**-0.5) * loadings]).T.copy()
        self.room = Room(loss.cells, components)
        self._generator = generator
        self._blocks: list[int] = []
        self.probabilities = np.empty((d, components), dtype=np.float32)
        self.contrasts = np.empty_like(self.room.rows)
        # Small squares are worked on in compiled code: such a step is so short that threads would wait for Python's
        # lock half the time.
        size = len(self.contrasts) if len(self.contrasts) <= SMALL and loss.trios is None else 0
        self._state = _State(
            probabilities=self.probabilities,
            contrasts=self.contrasts,
            design=design,
            parameters=parameters,
            velocity=np.zeros_like(parameters),
            squares=np.zeros_like(parameters),
            moment=np.zeros(2),
            pull=np.empty_like(self.contrasts),
            square=self.room.strip[: size**2].reshape(size, size),
            logits=np.empty_like(self.probabilities),
            slopes=np.empty_like(parameters),
        )
        logits = parameters @ design.T if design.size else parameters
        softmax(logits, loss.cells.offsets, self.probabilities, self.contrasts)

    def advance(self, steps: int) -> None:
        """Take this many steps."""
        loss, state = self._loss, self._state
        if len(state.square):
            _descend(steps, loss.goal, state)
            return
        if loss.trios is not None:
            for _ in range(steps):
                loss.whole_gradient(state.contrasts, state.pull)
                loss.trios.pull(state.contrasts, state.pull)
                _descend(1, loss.goal, state)
            return
        for _ in range(steps):
            if not self._blocks:
                self._blocks = self._generator.permutation(-(-len(state.contrasts) // _BLOCK)).tolist()
            loss.gradient(state.contrasts, state.pull, self.room, self._blocks.pop())
            _descend(1, loss.goal, state)


class Loss:
    """Sum over cells of precision x (predicted - target)^2, each pair once, + 3 x mean precision x (margin error)^2.

    In contrasts (see `contrasts`) that is the same sum over pairs of contrasts, and for each attribute A its margin
    error squared times 3 + the sum over the others of precision_AB / K_B. `weights` are those of `cell_weights`.
    Parities of triples of bits add their squared errors, where they were measured.
    """

    def __init__(
        self, targets: Targets, shrinkage: float, weights: NDArray[np.float32], trios: Trios | None = None
    ) -> None:
        self.cells, self.trios = targets.cells, trios
        self.levels = targets.levels.astype(np.float32)
        self.goal = _Goal(
            weighted=weights * contrast_tables(targets.mixed(shrinkage), self.cells),
            weights=weights,
            margins=contrast_levels(targets.levels, self.cells),
            margin_weights=np.float32(MARGIN_WEIGHT) + margin_weights(self.cells, targets.precision),
            offsets=self.cells.offsets,
        )

    def whole_gradient(self, found: NDArray[np.float32], pull: NDArray[np.float32]) -> None:
        """The gradient of the tables' part of the loss, as of `gradient`, from the whole residual."""
        residual = found @ found.T
        _weigh(residual, self.goal.weighted, self.goal.weights, 0, np.float32(1 / found.shape[1]))
        np.matmul(residual, found, out=pull)

    def gradient(self, found: NDArray[np.float32], pull: NDArray[np.float32], room: Room, block: int) -> None:
        """Of the tables' part of the loss in the contrasts F of Pi, shape (d - m, D), times D / 2, into `pull`.

        It is R F, with R = weights (F F^T / D - target), estimated without bias from one of N blocks S of rows of R:
        N / 2 (R_S F in the rows of S, plus R_S^T F_S in all). Over all blocks, each of the two has the mean R F / N.
        """
        c, components = found.shape
        first, last = block * _BLOCK, min((block + 1) * _BLOCK, c)
        residual = np.matmul(found[first:last], found.T, out=room.strip[: (last - first) * c].reshape(last - first, c))
        _weigh(residual, self.goal.weighted[first:last], self.goal.weights[first:last], 0, np.float32(1 / components))
        residual *= np.float32(-(-c // _BLOCK) / 2)
        np.matmul(residual.T, found[first:last], out=pull)
        pull[first:last] += np.matmul(residual, found, out=room.rows[first:last])


def step_operations(cells: Cells, start: Start) -> float:
    """Multiplications and additions in one step of a fit."""
    contrasts = cells.n_levels - cells.n_attributes
    rows = 4.0 * contrasts if contrasts <= SMALL else 6.0 * _BLOCK
    return max(start.components * contrasts * rows, 1.0)


def cell_weights(cells: Cells, precision: NDArray[np.float64]) -> NDArray[np.float32]:
    """The precision of the table that each pair of contrasts belongs to, shape (d - m, d - m)."""
    attribute = attribute_of_contrast(cells)
    return precision.astype(np.float32)[attribute[:, None], attribute]


def margin_weights(cells: Cells, precision: NDArray[np.float64]) -> NDArray[np.float32]:
    """How much the squared error of each contrast of the margins weighs in the two-way tables, shape (d - m,)."""
    weights = (precision / cells.sizes).sum(axis=1)
    return np.asarray(weights[attribute_of_contrast(cells)], dtype=np.float32)


class Room:
    """Memory that a fit uses again in every step: taking it anew costs as much as a tenth of the step."""

    def __init__(self, cells: Cells, components: int) -> None:
        contrasts = cells.n_levels - cells.n_attributes
        self.strip = np.empty(min(max(SMALL, _BLOCK), contrasts) * contrasts, dtype=np.float32)
        self.rows = np.empty((contrasts, components), dtype=np.float32)


def predicted_strips(found: NDArray[np.float32], room: Room) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
    """The product of an array with its transpose in strips: (first row, last row, the strip from column `first` on).

    It is symmetric, so that a strip need not begin before its own rows; and large domains need no second such array.
    A strip is in the room until the next one is.
    """
    for first in range(0, len(found), SMALL):
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


@numba.njit(
    numba.void(_SQUARE, _SQUARE, _SQUARE, numba.int64, numba.float32),
    cache=True,
    nogil=True,
    fastmath={"contract", "reassoc"},
)
def _weigh(
    strip: NDArray[np.float32],
    weighted: NDArray[np.float32],
    weights: NDArray[np.float32],
    first: int,
    scale: np.float32,
) -> None:
    """A strip of predictions to weighted residuals, in place. The target comes weighted."""
    for i in range(strip.shape[0]):
        wanted, weight = weighted[first + i, first:], weights[first + i, first:]
        for j in range(strip.shape[1]):
            strip[i, j] = weight[j] * (scale * strip[i, j]) - wanted[j]


@numba.njit(numba.void(numba.int64, _GOAL, _STATE), cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _descend(steps: int, goal: _Goal, state: _State) -> None:
    """Move the parameters against the gradient, and predict again, this many times.

    Where `state.square` is empty, the caller has found `state.pull`, for one step.
    """
    found, parameters, velocity, squares = state.contrasts, state.parameters, state.velocity, state.squares
    factor, one = state.design.size > 0, np.float32(1.0)
    scale = one / np.float32(found.shape[1])
    constant = np.empty(len(found), dtype=np.float32)
    for _ in range(steps):
        if len(state.square) == len(found):
            np.dot(found, found.T, state.square)
            _weigh(state.square, goal.weighted, goal.weights, 0, scale)
            np.dot(state.square, found, state.pull)
        for i in range(len(found)):
            total = np.float32(0.0)
            for c in range(found.shape[1]):
                total += found[i, c]
            constant[i] = goal.margin_weights[i] * (scale * total - goal.margins[i])
        gradient = state.logits
        size = through_softmax(state.pull, constant, state.probabilities, goal.offsets, gradient)
        if factor:
            np.dot(state.logits, state.design, state.slopes)
            gradient = state.slopes
            size = 0.0
            for i in range(gradient.shape[0]):
                for j in range(gradient.shape[1]):
                    size += float(gradient[i, j]) * float(gradient[i, j])
        moment = state.moment
        moment[0] += (1 - _SECOND_MOMENT) * (size / gradient.size - moment[0])
        moment[1] += 1
        # Running means begin at zero: as much is missing of them.
        unbiased = 1 / (1 - _SECOND_MOMENT ** moment[1])
        damping = np.float32(DAMPING * np.sqrt(max(moment[0] * unbiased, 1e-30)))
        rate = np.float32(RATE / (1 + moment[1] / DECAY) / (1 - _MOMENTUM ** moment[1]))
        momentum, memory, grown = np.float32(_MOMENTUM), np.float32(_SECOND_MOMENT), np.float32(unbiased)
        for i in range(parameters.shape[0]):
            for j in range(parameters.shape[1]):
                moved = gradient[i, j]
                velocity[i, j] = momentum * velocity[i, j] + (one - momentum) * moved
                squares[i, j] = memory * squares[i, j] + (one - memory) * moved * moved
                parameters[i, j] -= rate * velocity[i, j] / (np.sqrt(grown * squares[i, j]) + damping)
        if factor:
            np.dot(parameters, state.design.T, state.logits)
            softmax(state.logits, goal.offsets, state.probabilities, found)
        else:
            softmax(parameters, goal.offsets, state.probabilities, found)
