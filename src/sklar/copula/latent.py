"""Latent models over whole attributes: every record valid.

Given a latent component c, attributes are independent, with probabilities Pi[c] = softmax(W[c]) within each attribute;
D components are equally likely, so that the predicted two-way tables are Pi^T Pi / D. Two parametrisations of the
logits W, fitted by the same code to the same noisy tables:

- `mixture`: W free, a finite mixture;
- `factor`: W = b + Z L^T with Z ~ N(0, I_r), a low-rank Gaussian copula over whole attributes (a level wins when its
  logit plus Gumbel noise is largest), at D fixed points Z with the moments of the normal. Fitting and sampling use the
  same points.

Cost of a step: two products of (D, d) and (d, d) matrices, 4 D d^2 operations. Memory: the target and its weights,
8 d^2 bytes, one strip of the residual, and 16 D d bytes of state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from sklar.copula.blocks import Codes, blocks, empty_codes
from sklar.denoise import Targets
from sklar.progress import SILENT, Progress
from sklar.schema import Schema
from sklar.tables import block_of_level
from sklar.threads import in_order, side_by_side

Kind = Literal["mixture", "factor"]

MARGIN_WEIGHT = 3.0
RATE = 0.1
_MOMENTUM = 0.9
_SECOND_MOMENT = 0.99
_STRIP = 1024
_FLOOR = 1e-7


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
    """A fit in progress: `step` moves the logits against the gradient; `probabilities` is the present Pi, (D, d).

    Momentum with a single scalar second moment: every logit has the same rate, so that directions in which the tables
    say much are learnt long before those in which they hold noise, and stopping early regularises.
    """

    def __init__(self, loss: Loss, start: Start) -> None:
        self._loss = loss
        self._offsets = loss.offsets
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([start.seed, start.components])))
        base = np.log(np.maximum(loss.levels, np.float32(_FLOOR)))
        d = base.size
        self._design: NDArray[np.float32] | None = None
        if start.kind == "mixture":
            self._parameters = base + np.float32(start.sd) * generator.standard_normal(
                (start.components, d), dtype=np.float32
            )
        else:
            latent = _balanced_normals(generator, start.components, start.rank)
            self._design = np.hstack([np.ones((start.components, 1), np.float32), latent])
            loadings = generator.standard_normal((start.rank, d), dtype=np.float32)
            self._parameters = np.vstack([base, np.float32(start.sd * start.rank**-0.5) * loadings])
        self._velocity = np.zeros_like(self._parameters)
        self._second_moment = 0.0
        self._steps = 0
        self.probabilities = self._softmax()

    def _softmax(self) -> NDArray[np.float32]:
        logits = self._parameters.copy() if self._design is None else self._design @ self._parameters
        return softmax(logits, self._offsets)

    def step(self) -> None:
        """One step of gradient descent with momentum."""
        gradient = self._loss.gradient(self.probabilities)
        _through_softmax(gradient, self.probabilities, self._offsets)
        if self._design is not None:
            gradient = self._design.T @ gradient
        self._steps += 1
        square = float(np.vdot(gradient, gradient)) / gradient.size
        self._second_moment += (1 - _SECOND_MOMENT) * (square - self._second_moment)
        unbiased = self._second_moment / (1 - _SECOND_MOMENT**self._steps)
        rate = RATE / ((1 - _MOMENTUM**self._steps) * max(unbiased, 1e-30) ** 0.5)
        _move(self._parameters, self._velocity, gradient, np.float32(_MOMENTUM), np.float32(rate))
        self.probabilities = self._softmax()


class Loss:
    """Sum over cells of precision x (predicted - target)^2, each pair once, + 3 x mean precision x (margin error)^2."""

    def __init__(self, targets: Targets, shrinkage: float) -> None:
        self.offsets = targets.schema.offsets
        self.levels = targets.levels.astype(np.float32)
        self._target = targets.mixed(shrinkage)
        self._weights = cell_weights(targets.schema, targets.precision)

    def gradient(self, probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of the loss in Pi, shape (D, d), times D / 2."""
        gradient = np.empty_like(probabilities)
        scale = np.float32(1 / len(probabilities))
        for strip, residual in predicted_strips(probabilities):
            _weigh(residual, self._target[strip], self._weights[strip], scale)
            np.matmul(probabilities, residual.T, out=gradient[:, strip])
        gradient += np.float32(MARGIN_WEIGHT) * (probabilities.mean(axis=0) - self.levels)
        return gradient

    def value(self, probabilities: NDArray[np.float32]) -> float:
        """The loss, for tests."""
        total = 0.0
        for strip, predicted in predicted_strips(probabilities):
            error = predicted.astype(np.float64) / len(probabilities) - self._target[strip]
            total += float((self._weights[strip] * error**2).sum()) / 2
        margin = probabilities.mean(axis=0, dtype=np.float64) - self.levels
        return total + MARGIN_WEIGHT * float(margin @ margin)


def cell_weights(schema: Schema, precision: NDArray[np.float64]) -> NDArray[np.float32]:
    """The precision of every cell's table, shape (d, d)."""
    block = block_of_level(schema)
    return np.ascontiguousarray(precision.astype(np.float32)[block][:, block])


def predicted_strips(probabilities: NDArray[np.float32]) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Pi^T Pi in strips of rows, so that large domains need no second (d, d) array."""
    d = probabilities.shape[1]
    if d <= _STRIP:
        # numpy computes a matrix times its own transpose in half the operations.
        yield slice(0, d), probabilities.T @ probabilities
        return
    for first in range(0, d, _STRIP):
        strip = slice(first, min(first + _STRIP, d))
        yield strip, np.ascontiguousarray(probabilities[:, strip].T) @ probabilities


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
    loss = Loss(targets, shrinkage)

    def run(seed: int) -> NDArray[np.float32]:
        fit = Fit(loss, replace(start, seed=seed))
        for _ in range(steps):
            fit.step()
            progress.advance(1)
        return fit.probabilities

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


def softmax(logits: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    """Probabilities within each attribute, in place of the logits, shape (D, d)."""
    _subtract_max(logits, offsets)
    np.exp(logits, out=logits)
    _normalize(logits, offsets)
    return logits


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _subtract_max(logits: NDArray[np.float32], offsets: NDArray[np.int64]) -> None:
    for c in range(logits.shape[0]):
        for a in range(offsets.size - 1):
            top = logits[c, offsets[a]]
            for k in range(offsets[a] + 1, offsets[a + 1]):
                top = max(top, logits[c, k])
            for k in range(offsets[a], offsets[a + 1]):
                logits[c, k] -= top


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _normalize(weights: NDArray[np.float32], offsets: NDArray[np.int64]) -> None:
    for c in range(weights.shape[0]):
        for a in range(offsets.size - 1):
            total = np.float32(0.0)
            for k in range(offsets[a], offsets[a + 1]):
                total += weights[c, k]
            scale = np.float32(1.0) / total
            for k in range(offsets[a], offsets[a + 1]):
                weights[c, k] *= scale


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _through_softmax(
    gradient: NDArray[np.float32], probabilities: NDArray[np.float32], offsets: NDArray[np.int64]
) -> None:
    """From the gradient in Pi to the gradient in W, in place: Pi (g - sum of Pi g within the attribute)."""
    for c in range(gradient.shape[0]):
        for a in range(offsets.size - 1):
            mean = np.float32(0.0)
            for k in range(offsets[a], offsets[a + 1]):
                mean += gradient[c, k] * probabilities[c, k]
            for k in range(offsets[a], offsets[a + 1]):
                gradient[c, k] = (gradient[c, k] - mean) * probabilities[c, k]


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _weigh(
    predicted: NDArray[np.float32], target: NDArray[np.float32], weights: NDArray[np.float32], scale: np.float32
) -> None:
    for i in range(predicted.shape[0]):
        for j in range(predicted.shape[1]):
            predicted[i, j] = weights[i, j] * (scale * predicted[i, j] - target[i, j])


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _move(
    parameters: NDArray[np.float32],
    velocity: NDArray[np.float32],
    gradient: NDArray[np.float32],
    momentum: np.float32,
    rate: np.float32,
) -> None:
    for i in range(parameters.shape[0]):
        for j in range(parameters.shape[1]):
            velocity[i, j] = momentum * velocity[i, j] + (np.float32(1.0) - momentum) * gradient[i, j]
            parameters[i, j] -= rate * velocity[i, j]


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
