"""Latent models over whole attributes: every record valid.

Given a latent component c, attributes are independent, with probabilities Pi[c] = softmax(W[c]) within each attribute;
D components are equally likely, so that the predicted two-way tables are Pi^T Pi / D. Two parametrisations of the
logits W, fitted by the same code to the same noisy tables:

- `mixture`: W free, a finite mixture;
- `factor`: W = b + Z L^T with Z ~ N(0, I_r), a low-rank Gaussian copula over whole attributes (a level wins when its
  logit plus Gumbel noise is largest), at D fixed points Z with the moments of the normal. Fitting and sampling use the
  same points.

Cost of a step with c = d - m contrasts (m where all attributes are binary): the product of a (c, D) matrix with its
transpose, and of the residual with it, 3 D c^2 operations; 2 D c^2 + D^2 (4 c + 2 m^2) where few attributes have
large domains. Memory: the target and its weights, 8 c^2 bytes, one strip of the residual, and about 24 D d bytes of
state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import block_of_level
from sklar.draw.blocks import Codes, blocks, empty_codes
from sklar.fitting.contrasts import (
    block_of_contrast,
    contrast_levels,
    contrast_tables,
    softmax,
    through_softmax,
)
from sklar.fitting.denoise import Targets
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import in_order, side_by_side
from sklar.public.schema import Schema

Kind = Literal["mixture", "factor"]

MARGIN_WEIGHT = 3.0
RATE = 0.1
_MOMENTUM = 0.9
_SECOND_MOMENT = 0.99
# Rows of the residual that are held at a time.
_STRIP = 256
# Steps between two words to whoever watches.
_AT_ONCE = 10
_FLOOR = 1e-7
_ROW, _SQUARE = numba.float32[::1], numba.float32[:, ::1]
# What a fit holds, as `_descend` takes it.
_STATE = (
    _SQUARE,
    _ROW,
    _ROW,
    # A schema's offsets are read-only.
    numba.types.Array(numba.int64, 1, "C", readonly=True),
    _SQUARE,
    _SQUARE,
    _SQUARE,
    _SQUARE,
    _SQUARE,
    _SQUARE,
    _SQUARE,
    numba.float64[::1],
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatentModel:
    """Equally likely components, each with independent attributes.

    `probabilities` has shape (components, d): within each attribute's levels, rows sum to one.
    """

    schema: Schema
    probabilities: NDArray[np.float32]

    @property
    def n_components(self) -> int:
        """How many components there are."""
        return len(self.probabilities)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a fit begins: its parametrisation, components, the sd of the start, rank (factor only) and seed."""

    kind: Kind = "mixture"
    components: int = 150
    sd: float = 1.0
    rank: int = 32
    seed: int = 0


class Fit:
    """A fit in progress: `advance` moves the logits against the gradient.

    Momentum with a single scalar second moment: every logit has the same rate, so that directions in which the tables
    say much are learnt long before those in which they hold noise, and stopping early regularises.

    `probabilities` is the present Pi, transposed, shape (d, D), and `contrasts` the same in contrasts, (d - m, D).
    `room` is for whoever works with them in the thread of the fit.
    """

    def __init__(self, loss: Loss, start: Start) -> None:
        self._loss = loss
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([start.seed, start.components])))
        base = np.log(np.maximum(loss.levels, np.float32(_FLOOR)))
        d, components = base.size, start.components
        # Of a mixture the logits are the parameters.
        design = np.empty((components, 0), dtype=np.float32)
        if start.kind == "mixture":
            drawn = generator.standard_normal((components, d), dtype=np.float32)
            parameters = np.ascontiguousarray((base + np.float32(start.sd) * drawn).T)
        else:
            latent = _balanced_normals(generator, components, start.rank)
            design = np.ascontiguousarray(np.hstack([np.ones((components, 1), np.float32), latent]))
            loadings = generator.standard_normal((start.rank, d), dtype=np.float32)
            parameters = np.vstack([base, np.float32(start.sd * start.rank**-0.5) * loadings]).T.copy()
        self.probabilities = np.empty((d, components), dtype=np.float32)
        self.contrasts = np.empty((d - loss.schema.n_attributes, components), dtype=np.float32)
        self.room = Room(loss.schema, components)
        self._pull = np.empty_like(self.contrasts)
        self._state = (
            self._pull,
            loss.margins,
            loss.margin_weights,
            loss.schema.offsets,
            self.probabilities,
            self.contrasts,
            design,
            parameters,
            np.zeros_like(parameters),
            np.empty_like(self.probabilities),
            np.empty_like(parameters),
            np.zeros(2),
        )
        logits = parameters @ design.T if design.size else parameters
        softmax(logits, loss.schema.offsets, self.probabilities, self.contrasts)

    def advance(self, steps: int) -> None:
        """So many steps of gradient descent with momentum."""
        contrasts, loss = len(self.contrasts), self._loss
        if contrasts <= _STRIP and self.room.squares is None:
            square = self.room.strip.reshape(contrasts, contrasts)
            _descend(steps, square, loss.weighted, loss.weights, *self._state)
            return
        for _ in range(steps):
            loss.gradient(self.contrasts, self._pull, self.room)
            _descend(1, self.room.strip[:0].reshape(0, 1), loss.weighted, loss.weights, *self._state)


class Loss:
    """Sum over cells of precision x (predicted - target)^2, each pair once, + 3 x mean precision x (margin error)^2.

    In contrasts (see `contrasts`) that is the same sum over pairs of contrasts, and for each attribute A its margin
    error squared times 3 + the sum over the others of precision_AB / K_B. `weights` are those of `cell_weights`.
    """

    def __init__(self, targets: Targets, shrinkage: float, weights: NDArray[np.float32]) -> None:
        self.schema = targets.schema
        self.levels = targets.levels.astype(np.float32)
        self.margins = contrast_levels(targets.levels, targets.schema)
        self.margin_weights = np.float32(MARGIN_WEIGHT) + margin_weights(targets.schema, targets.precision)
        self.weighted = weights * contrast_tables(targets.mixed(shrinkage), targets.schema)
        self.weights = weights
        self._precision = targets.precision.astype(np.float32)
        self._ends = self.schema.offsets - np.arange(self.schema.n_attributes + 1)

    def gradient(self, found: NDArray[np.float32], pull: NDArray[np.float32], room: Room) -> None:
        """Of the tables' part of the loss in the contrasts F of Pi, shape (d - m, D), times D / 2, into `pull`."""
        if room.squares is None:
            self._by_strips(found, pull, room)
        else:
            self._by_attributes(found, pull, room.rows, *room.squares)

    def _by_strips(self, found: NDArray[np.float32], gradient: NDArray[np.float32], room: Room) -> None:
        """(weights (F F^T / D - target)) F, a strip of the residual at a time."""
        scale = np.float32(1 / found.shape[1])
        for first, last, residual in predicted_strips(found, room):
            _weigh(residual, self.weighted, self.weights, first, scale)
            beyond = residual[:, last - first :].T
            if first == 0:
                np.matmul(residual, found, out=gradient[:last])
                np.matmul(beyond, found[:last], out=gradient[last:])
            else:
                gradient[first:last] += np.matmul(residual, found[first:], out=room.rows[first:last])
                gradient[last:] += np.matmul(beyond, found[first:last], out=room.rows[last:])

    def _by_attributes(
        self,
        found: NDArray[np.float32],
        gradient: NDArray[np.float32],
        rows: NDArray[np.float32],
        own: NDArray[np.float32],
        others: NDArray[np.float32],
    ) -> None:
        """The same, F_A (sum over B of precision_AB F_B^T F_B) / D for each attribute A, less the weighted target."""
        np.matmul(self.weighted, found, out=gradient)
        parts = [slice(first, last) for first, last in pairwise(self._ends)]
        for part, square in zip(parts, own, strict=True):
            np.matmul(found[part].T, found[part], out=square)
        m, components = own.shape[:2]
        np.matmul(self._precision / np.float32(components), own.reshape(m, -1), out=others.reshape(m, -1))
        for part, square in zip(parts, others, strict=True):
            np.matmul(found[part], square, out=rows[part])
        np.subtract(rows, gradient, out=gradient)


def cell_weights(schema: Schema, precision: NDArray[np.float64]) -> NDArray[np.float32]:
    """The precision of the table that each pair of contrasts belongs to, shape (d - m, d - m)."""
    block = block_of_contrast(schema)
    return precision.astype(np.float32)[block[:, None], block]


def margin_weights(schema: Schema, precision: NDArray[np.float64]) -> NDArray[np.float32]:
    """How much the squared error of each contrast of the margins weighs in the two-way tables, shape (d - m,)."""
    weights = (precision / schema.sizes).sum(axis=1)
    return np.asarray(weights[block_of_contrast(schema)], dtype=np.float32)


class Room:
    """Memory that a fit uses again in every step: taking it anew costs as much as a tenth of the step.

    `squares` are there where few attributes have large domains: then products of D x D matrices, one for each
    attribute, take less work than the residual of all pairs of contrasts.
    """

    def __init__(self, schema: Schema, components: int) -> None:
        m, contrasts = schema.n_attributes, schema.n_levels - schema.n_attributes
        self.strip = np.empty(min(_STRIP, contrasts) * contrasts, dtype=np.float32)
        self.rows = np.empty((contrasts, components), dtype=np.float32)
        pays = components * (4 * contrasts + 2 * m**2) < contrasts**2
        self.squares = np.empty((2, m, components, components), dtype=np.float32) if pays else None


def predicted_strips(found: NDArray[np.float32], room: Room) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
    """The product of an array with its transpose in strips: (first row, last row, the strip from column `first` on).

    It is symmetric, so that a strip need not begin before its own rows; and large domains need no second such array.
    A strip is in the room until the next one is.
    """
    for first in range(0, len(found), _STRIP):
        last = min(first + _STRIP, len(found))
        shape = (last - first, len(found) - first)
        strip = room.strip[: shape[0] * shape[1]].reshape(shape)
        yield first, last, np.matmul(found[first:last], found[first:].T, out=strip)


def predict_pairs(model: LatentModel) -> NDArray[np.float32]:
    """Predicted two-way tables, as probabilities, shape (d, d), symmetric; zero within attributes."""
    block = block_of_level(model.schema)
    pairs = model.probabilities.T @ model.probabilities / np.float32(model.n_components)
    pairs[block[:, None] == block[None, :]] = 0.0
    return np.asarray(pairs)


def independent(schema: Schema, levels: NDArray[np.float64]) -> LatentModel:
    """The model of one component: independence with these margins."""
    return LatentModel(schema=schema, probabilities=levels.astype(np.float32)[None, :])


def fit_latent(
    targets: Targets, shrinkage: float, start: Start, *, steps: int, fits: int, progress: Progress = SILENT
) -> LatentModel:
    """The union of several fits of so many steps, from different random starts."""
    loss = Loss(targets, shrinkage, cell_weights(targets.schema, targets.precision))

    def run(seed: int) -> NDArray[np.float32]:
        fit = Fit(loss, replace(start, seed=seed))
        for done in range(0, steps, _AT_ONCE):
            some = min(_AT_ONCE, steps - done)
            fit.advance(some)
            progress.advance(some)
        return fit.probabilities.T

    found = side_by_side(run, range(start.seed, start.seed + fits))
    return LatentModel(schema=targets.schema, probabilities=np.concatenate(found))


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


@numba.njit(
    numba.void(numba.int64, _SQUARE, _SQUARE, _SQUARE, *_STATE),
    cache=True,
    nogil=True,
    fastmath={"contract", "reassoc"},
)
def _descend(
    steps: int,
    square: NDArray[np.float32],
    weighted: NDArray[np.float32],
    weights: NDArray[np.float32],
    pull: NDArray[np.float32],
    margins: NDArray[np.float32],
    margin_weights: NDArray[np.float32],
    offsets: NDArray[np.int64],
    probabilities: NDArray[np.float32],
    found: NDArray[np.float32],
    design: NDArray[np.float32],
    parameters: NDArray[np.float32],
    velocity: NDArray[np.float32],
    logits: NDArray[np.float32],
    slopes: NDArray[np.float32],
    moment: NDArray[np.float64],
) -> None:
    """Move the parameters against the gradient, and predict again, so many times.

    `pull` is the tables' part of the gradient. Where `square`, room for all pairs of contrasts, is not empty, it is
    found here: such a step is so short that threads would wait for Python's lock half the time. `moment` is the running
    mean of squares and the number of steps; `logits` and `slopes` are room.
    """
    factor, one = design.size > 0, np.float32(1.0)
    scale = one / np.float32(found.shape[1])
    constant = np.empty(len(found), dtype=np.float32)
    for _ in range(steps):
        if square.size:
            np.dot(found, found.T, square)
            _weigh(square, weighted, weights, 0, scale)
            np.dot(square, found, pull)
        for i in range(len(found)):
            total = np.float32(0.0)
            for c in range(found.shape[1]):
                total += found[i, c]
            constant[i] = margin_weights[i] * (scale * total - margins[i])
        gradient = logits
        size = through_softmax(pull, constant, probabilities, offsets, gradient)
        if factor:
            np.dot(logits, design, slopes)
            gradient = slopes
            size = 0.0
            for i in range(len(slopes)):
                for j in range(slopes.shape[1]):
                    size += float(slopes[i, j]) * float(slopes[i, j])
        moment[0] += (1 - _SECOND_MOMENT) * (size / gradient.size - moment[0])
        moment[1] += 1
        unbiased = moment[0] / (1 - _SECOND_MOMENT ** moment[1])
        rate = np.float32(RATE / ((1 - _MOMENTUM ** moment[1]) * np.sqrt(max(unbiased, 1e-30))))
        momentum = np.float32(_MOMENTUM)
        for i in range(parameters.shape[0]):
            for j in range(parameters.shape[1]):
                velocity[i, j] = momentum * velocity[i, j] + (one - momentum) * gradient[i, j]
                parameters[i, j] -= rate * velocity[i, j]
        if factor:
            np.dot(parameters, design.T, logits)
            softmax(logits, offsets, probabilities, found)
        else:
            softmax(parameters, offsets, probabilities, found)


def sample_latent(model: LatentModel, rows: int, seed: int) -> Iterator[Codes]:
    """Blocks of codes, shape (m, rows of block), `rows` rows in all; O(m) per row."""
    sampler = LatentSampler(model)
    return in_order(lambda block: sampler.draw(seed, *block), blocks(rows))


class LatentSampler:
    """Draws any block of a model's rows; whatever all blocks share is worked out once.

    Every record has exactly the model's distribution, and attributes are independent within a component; but components
    and levels are allotted systematically, so that counts of levels are within about one of their expectation in each
    block.
    """

    def __init__(self, model: LatentModel) -> None:
        self._model = model
        self._offsets = model.schema.offsets
        self._visits = _visits(model)
        self._shares = _shares(model.probabilities, self._offsets)

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows)."""
        schema = self._model.schema
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, block])))
        bounds = _systematic(generator, rows, self._model.n_components)
        place = generator.permutation(rows).astype(np.uint16)
        uniforms = generator.random(schema.n_levels)
        keys = generator.integers(1, 2**63, size=schema.n_attributes, dtype=np.uint64)
        codes = empty_codes(schema, rows)
        _draw(codes, self._shares, self._offsets, self._visits, bounds, place, uniforms, keys)
        return codes


def _visits(model: LatentModel) -> NDArray[np.int32]:
    """The order in which each attribute's levels are dealt out to components, shape (m, components): like to like.

    Rounding errors of one component are made good in the next; they cancel in full where the two are alike.
    """
    visits = np.empty((model.schema.n_attributes, model.n_components), dtype=np.int32)
    for a, (first, last) in enumerate(pairwise(model.schema.offsets)):
        own = model.probabilities[:, first:last]
        top = own.argmax(axis=1)
        visits[a] = np.lexsort((own[np.arange(len(own)), top], top))
    return visits


def _shares(probabilities: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each level's share of those levels of its attribute that do not come before it, shape (components, d)."""
    shares = np.empty(probabilities.shape)
    for first, last in pairwise(offsets):
        own = probabilities[:, first:last].astype(np.float64)
        # Summed from the last level back: one that nobody can take after it has all that is left, to the last bit.
        rest = np.cumsum(own[:, ::-1], axis=1)[:, ::-1]
        shares[:, first:last] = np.divide(own, rest, out=np.ones_like(own), where=rest > own)
    return shares


def _systematic(generator: np.random.Generator, rows: int, components: int) -> NDArray[np.int64]:
    """Where each component's rows end: rows / components for each on average, rounded by one common uniform."""
    ends = np.floor(np.arange(components + 1) * (rows / components) + generator.random()).astype(np.int64)
    ends[0], ends[-1] = 0, rows
    return np.asarray(ends)


@numba.njit(cache=True, nogil=True)
def _draw(
    codes: Codes,
    shares: NDArray[np.float64],
    offsets: NDArray[np.int64],
    visits: NDArray[np.int32],
    bounds: NDArray[np.int64],
    place: NDArray[np.uint16],
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
) -> None:
    """Levels of every attribute: counts per component by systematic rounding, dealt to its rows at random.

    Levels are split off one at a time. Of the rows that a component still has, level k takes its share
    p_k / (p_k + p_(k+1) + ...), rounded so that the running total over components stays within one of the sum of the
    shares: floor(S_c + u) - floor(S_(c-1) + u) has the right expectation for a uniform u.

    `place` holds the rows, component by component, and is shuffled on the way.
    """
    for a in range(codes.shape[0]):
        first, last = offsets[a], offsets[a + 1]
        own = codes[a]
        running = uniforms[first:last].copy()
        floors = np.zeros(last - first, dtype=np.int64)
        took = np.empty(last - first, dtype=np.int64)
        state = keys[a]
        for visit in range(visits.shape[1]):
            c = visits[a, visit]
            begin, end = bounds[c], bounds[c + 1]
            left = end - begin
            if left == 0:
                continue
            reached, largest = 0, 0
            for k in range(last - first):
                share = shares[c, first + k]
                if share >= 1.0:
                    took[k] = left
                else:
                    running[k] += left * share
                    took[k] = min(max(np.int64(np.floor(running[k])) - floors[k], 0), left)
                    floors[k] += took[k]
                if took[k] > took[largest]:
                    largest = k
                left -= took[k]
                reached = k + 1
                if left == 0:
                    break
            # All rows get the most frequent level; then each of the others takes rows that none has taken yet, by a
            # shuffle that goes only as far as it must. Where the shuffle starts from makes no difference.
            for row in range(begin, end):
                own[place[row]] = largest
            taken = begin
            for k in range(reached):
                if k == largest:
                    continue
                for _ in range(took[k]):
                    # xorshift64*: shuffles need speed, and rows of a component are few.
                    state ^= state >> np.uint64(12)
                    state ^= state << np.uint64(25)
                    state ^= state >> np.uint64(27)
                    word = (state * np.uint64(2685821657736338717)) >> np.uint64(32)
                    other = taken + np.int64((word * np.uint64(end - taken)) >> np.uint64(32))
                    chosen = place[other]
                    place[other] = place[taken]
                    place[taken] = chosen
                    own[chosen] = k
                    taken += 1
