"""Tables in orthonormal contrasts, and what a step of a fit does between its matrix products. The derivation:
docs/derivations.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.fitting.margins import with_alike
from sklar.kernel.cells import Cells, Doubles, Floats, Ints
from sklar.machine.compiled import OFFSETS, compiled
from sklar.machine.spill import room_for

MOMENTUM, SECOND_MOMENT = 0.9, 0.99
# A step of the first size, falling as 1 / (1 + steps / DECAY).
RATE, DECAY = 0.2, 1_000.0
# The share of a fit's steps, the last ones, over which the rate falls to nothing: fits come to rest.
COOL = 0.1
_CENTERED = 16
# With Python's error model every division would ask for a zero first, and no loop that divides would vectorize.
_FAST: dict[str, Any] = {"fastmath": {"contract", "reassoc"}, "error_model": "numpy"}
# 2^f between -1/2 and 1/2, to the least largest relative error.
_EXP = tuple(
    np.float32(c) for c in (1, 0.693147206, 0.240226469, 0.0555032878, 0.00961848896, 0.00133999312, 0.000153458116)
)


def attribute_of_contrast(cells: Cells) -> Ints:
    """The attribute that each of the d - m contrasts belongs to, shape (d - m,)."""
    return np.repeat(np.arange(cells.n_attributes), cells.sizes - 1)


def others(cells: Cells) -> Ints:
    """The levels that are not the first of their attribute, shape (d - m,): each has a contrast."""
    return np.flatnonzero(np.diff(cells.attribute_of_level, prepend=-1) == 0)


def contrasts(values: Floats, cells: Cells) -> Floats:
    """Q along the first axis: shape (d, n) to (d - m, n)."""
    attribute = attribute_of_contrast(cells)
    root = np.sqrt(cells.sizes.astype(np.float32))[:, None]
    totals = np.add.reduceat(values, cells.offsets[:-1], axis=0)
    # An attribute of one level has no contrasts: whatever its shift, nothing is moved by it.
    shift = (totals / root - values[cells.offsets[:-1]]) / np.maximum(root - 1, 1e-3)
    return np.asarray(values[others(cells)] - shift[attribute], dtype=np.float32)


def contrast_levels(levels: Doubles, cells: Cells) -> Floats:
    """Q p of every attribute's probabilities, shape (d,) to (d - m,)."""
    return contrasts(levels.astype(np.float32)[:, None], cells)[:, 0]


def contrast_tables(tables: NDArray[np.floating[Any]], cells: Cells) -> Floats:
    """Q T Q^T of every two-way table, shape (n_cells,) to (d - m, d - m), symmetric; zero within attributes."""
    size = cells.n_levels - cells.n_attributes
    found: Floats = room_for((size, size), np.float32)
    starts = cells.offsets[:-1] - np.arange(cells.n_attributes)

    def fill(members: Ints) -> None:
        own = tables[cells.places(members)].astype(np.float32, copy=False)
        height, width = own.shape[1:]
        if height == 1 or width == 1:
            return
        own = _along(_along(own, 1), 2)
        first, second = (starts[each[members]] for each in cells.pairs)
        up = (first[:, None] + np.arange(height - 1))[:, :, None]
        across = (second[:, None] + np.arange(width - 1))[:, None, :]
        found[up, across] = own
        found[across, up] = own

    with_alike(cells, fill)
    return found


def _along(tables: Floats, axis: int) -> Floats:
    """Q along one axis of tables of one shape, (tables, rows, columns)."""
    root = np.sqrt(np.float32(tables.shape[axis]))
    first, rest = np.split(tables, [1], axis=axis)
    return np.asarray(rest - (tables.sum(axis=axis, keepdims=True) / root - first) / (root - np.float32(1.0)))


class Logits:
    """Logits of levels in components, and the probabilities and contrasts that they give; `move` takes a step.

    It is Adam (Kingma and Ba 2015), damped: a logit's step is its gradient, averaged over steps, over its own rms plus
    `damping` times the rms of all. Rare levels so learn as fast as common ones, while those that the tables say nothing
    of hardly move. The rate falls with the number of steps alone; a fit that ends after `until` steps comes to rest.

    `first` has shape (d, D): the components of `fits`, one after the other. The first level of every attribute stands
    before all others, so that those with a contrast are one slice. Buffers are reused: allocating costs as much as the
    arithmetic.
    """

    def __init__(
        self, cells: Cells, first: Floats, *, damping: float, fits: int = 1, until: int = 0, rate: float = RATE
    ) -> None:
        self._fits, self._m, self._offsets = fits, cells.n_attributes, cells.offsets
        self._damping, self._until, self._rate = damping, until, rate
        self._order = self._arrange(cells)
        self._logits = room_for(first.shape, np.float32)
        self._logits[:] = first[self._order]
        self._probabilities, self.gradient, self._room = (room_for(first.shape, np.float32) for _ in range(3))
        self._rest = self._room[self._m :]
        self.contrasts = room_for((cells.n_levels - self._m, first.shape[1]), np.float32)
        # Fading sums of each gradient and of its square; the mean of the latter over each fit; the number of steps.
        self._velocity, self._squares = (room_for(first.shape, np.float32) for _ in range(2))
        self._moments, self._steps = np.zeros(fits), 0
        self._predict()

    @property
    def probabilities(self) -> Floats:
        """The present probabilities of levels in components, shape (d, D)."""
        return self.in_order(self._probabilities)

    def in_order(self, own: Floats) -> Floats:
        """Values of levels in the order of the attributes, shape (d, D)."""
        values = np.empty_like(own)
        values[self._order] = own
        return values

    def move(self, pull: Floats, constant: Floats) -> None:
        """Move against the gradient in the contrasts, pull + constant, shapes (d - m, D) and (d - m, fits)."""
        sizes = self.back(pull, constant)
        sizes = sizes * (sizes.size / max(self.gradient.size, 1))
        self._moments += (1 - SECOND_MOMENT) * (sizes - self._moments)
        self._steps += 1
        # Running means begin at zero: as much is missing of them.
        damping = self._damping * np.sqrt(np.maximum(self._moments / (1 - SECOND_MOMENT**self._steps), 1e-30))
        mean, mean_square = (((1 - fade) / (1 - fade**self._steps)) for fade in (MOMENTUM, SECOND_MOMENT))
        rate = self._rate / (1 + self._steps / DECAY) * mean
        if self._until:
            rate *= min(1.0, (self._until - self._steps + 1) / (COOL * self._until))
        self._step(rate, mean_square, damping)
        self._predict()

    def _predict(self) -> None:
        # In a step no logit moves by more than 2.4 rates, so that in between all stay near.
        if self._steps % _CENTERED == 0:
            self._center()
        self._soften()

    def _arrange(self, cells: Cells) -> Ints:
        self._of_contrast = attribute_of_contrast(cells)
        # A product with a matrix of zeros and ones is the fastest sum within attributes.
        self._members = (np.arange(self._m)[:, None] == self._of_contrast).astype(np.float32)
        self._several = np.flatnonzero(cells.sizes > 1)
        root = np.sqrt(cells.sizes.astype(np.float32))[:, None]
        self._slope = np.where(root > 1, 1 / np.maximum(root - 1, np.float32(1e-3)), np.float32(1.0))
        self._root = 1 / root
        return np.concatenate([cells.offsets[:-1], others(cells)])

    def _sums(self, rest: Floats) -> Floats:
        """The sum over each attribute's levels but the first, shape (m, D)."""
        return np.asarray(self._members @ rest)

    def _by_fit(self, values: Floats) -> Floats:
        """A view of shape (rows, fits, components of each)."""
        return values.reshape(len(values), self._fits, values.shape[1] // self._fits)

    def _spread(self, each: Floats) -> Floats:
        """What each attribute has, on all its levels but the first: in the room."""
        # Indices are right: without `clip`, NumPy would copy the room for the case that one is not.
        return np.take(each, self._of_contrast, axis=0, out=self._rest, mode="clip")

    def _center(self) -> None:
        """Take the largest logit of each attribute off all of them, which changes no probability."""
        first, rest = self._logits[: self._m], self._logits[self._m :]
        most, own = first.copy(), self._several
        most[own] = np.maximum(most[own], np.maximum.reduceat(rest, (self._offsets[:-1] - np.arange(self._m))[own]))
        rest -= self._spread(most)
        first -= most

    def _soften(self) -> None:
        """Probabilities within each attribute from logits that are near to centered ones, and their contrasts."""
        np.exp(self._logits, out=self._probabilities)
        first, rest = self._probabilities[: self._m], self._probabilities[self._m :]
        scale = self._sums(rest)
        scale += first
        np.divide(1, scale, out=scale)
        first *= scale
        rest *= self._spread(scale)
        np.subtract(self._root, first, out=scale)
        scale *= self._slope
        np.subtract(rest, self._spread(scale), out=self.contrasts)

    def back(self, pull: Floats, constant: Floats) -> Doubles:
        """From the gradient in the contrasts, pull + constant, to `gradient`, that in the logits: its square, by fit.

        In the probabilities it is g = Q^T (pull + constant), and in the logits p (g - sum of p g within the attribute),
        which does not change when g moves by a constant: so that g_j is pull_j and g_0 the sum of them / (sqrt(K) - 1).
        """
        gradient = self.gradient
        first, rest = gradient[: self._m], gradient[self._m :]
        np.add(self._by_fit(pull), constant[:, :, None], out=self._by_fit(rest))
        np.multiply(self._sums(rest), self._slope, out=first)
        np.multiply(gradient, self._probabilities, out=self._room)
        mean = self._sums(self._rest)
        mean += self._room[: self._m]
        first -= mean
        rest -= self._spread(mean)
        gradient *= self._probabilities
        if self._fits == 1:
            return np.array([np.vdot(gradient, gradient)], dtype=np.float64)
        by_fit = self._by_fit(gradient)
        return np.asarray(np.einsum("ijk,ijk->j", by_fit, by_fit), dtype=np.float64)

    def _step(self, rate: float, grown: float, damping: Doubles) -> None:
        """Add the gradient to the fading sums, and move the logits; `grown` makes a mean of the sum of squares."""
        self._velocity *= np.float32(MOMENTUM)
        self._velocity += self.gradient
        self._squares *= np.float32(SECOND_MOMENT)
        step = np.multiply(self.gradient, self.gradient, out=self._room)
        self._squares += step
        np.sqrt(self._squares, out=step)
        # sqrt(grown squares) + damping over sqrt(grown), and the rate likewise.
        self._by_fit(step)[:] += (damping / grown**0.5).astype(np.float32)[:, None]
        np.divide(self._velocity, step, out=step)
        step *= np.float32(rate / grown**0.5)
        self._logits -= step


class CompiledLogits(Logits):
    """The same of one fit in compiled code, without the GIL. Levels stand in their own order."""

    def _arrange(self, cells: Cells) -> Ints:
        return np.arange(cells.n_levels)

    def _center(self) -> None:
        """Do nothing: compiled code takes logits of any size."""

    def _soften(self) -> None:
        _softmax(self._logits, self._offsets, self._probabilities, self.contrasts)

    def back(self, pull: Floats, constant: Floats) -> Doubles:
        """From the gradient in the contrasts to that in the logits: its square."""
        constant = constant[:, 0].copy()
        return np.array([_through_softmax(pull, constant, self._probabilities, self._offsets, self.gradient)])

    def _step(self, rate: float, grown: float, damping: Doubles) -> None:
        rates = np.array([rate, grown, damping[0]], dtype=np.float32)
        _move(self._logits, self._velocity, self._squares, self.gradient, rates)


@compiled()
def _exp(x):  # type: ignore[no-untyped-def]
    """e^x for an x = (k + f) ln 2 of at most zero, to a few units of the last digit; written out to vectorize."""
    y = max(x, np.float32(-87.0)) * np.float32(1.4426950408889634)
    k = np.int32(y - np.float32(0.5))
    f = y - np.float32(k)
    power = _EXP[6]
    power = power * f + _EXP[5]
    power = power * f + _EXP[4]
    power = power * f + _EXP[3]
    power = power * f + _EXP[2]
    power = power * f + _EXP[1]
    power = power * f + _EXP[0]
    return power * np.int32((k + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled(f"void(float32[:, ::1], {OFFSETS}, float32[:, ::1], float32[:, ::1])", **_FAST)
def _softmax(logits: Floats, offsets: Ints, probabilities: Floats, found: Floats) -> None:
    n = logits.shape[1]
    top, scale, shift = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
    one = np.float32(1.0)
    for a in range(offsets.size - 1):
        first, size = offsets[a], offsets[a + 1] - offsets[a]
        for c in range(n):
            top[c] = logits[first, c]
        for k in range(1, size):
            for c in range(n):
                top[c] = logits[first + k, c] if logits[first + k, c] > top[c] else top[c]
        scale[:] = np.float32(0.0)
        for k in range(size):
            for c in range(n):
                weight = _exp(logits[first + k, c] - top[c])
                probabilities[first + k, c] = weight
                scale[c] += weight
        root = np.sqrt(np.float32(size))
        slope = one / (root - one) if size > 1 else one
        for c in range(n):
            scale[c] = one / scale[c]
            probabilities[first, c] *= scale[c]
            shift[c] = (one / root - probabilities[first, c]) * slope
        for k in range(1, size):
            for c in range(n):
                probabilities[first + k, c] *= scale[c]
                found[first - a + k - 1, c] = probabilities[first + k, c] - shift[c]


@compiled(f"float64(float32[:, ::1], float32[::1], float32[:, ::1], {OFFSETS}, float32[:, ::1])", **_FAST)
def _through_softmax(pull: Floats, constant: Floats, probabilities: Floats, offsets: Ints, gradient: Floats) -> float:
    n = pull.shape[1]
    one = np.float32(1.0)
    total, mean = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
    square = 0.0
    for a in range(offsets.size - 1):
        first, size = offsets[a], offsets[a + 1] - offsets[a]
        total[:] = np.float32(0.0)
        mean[:] = np.float32(0.0)
        for k in range(1, size):
            at = first - a + k - 1
            for c in range(n):
                pulled = pull[at, c] + constant[at]
                total[c] += pulled
                mean[c] += pulled * probabilities[first + k, c]
        slope = one / (np.sqrt(np.float32(size)) - one) if size > 1 else one
        part = np.float32(0.0)
        for c in range(n):
            total[c] *= slope
            mean[c] += total[c] * probabilities[first, c]
            moved = (total[c] - mean[c]) * probabilities[first, c]
            gradient[first, c] = moved
            part += moved * moved
        square += float(part)
        for k in range(1, size):
            at = first - a + k - 1
            part = np.float32(0.0)
            for c in range(n):
                moved = (pull[at, c] + constant[at] - mean[c]) * probabilities[first + k, c]
                gradient[first + k, c] = moved
                part += moved * moved
            square += float(part)
    return square


@compiled("void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[::1])", **_FAST)
def _move(logits: Floats, velocity: Floats, squares: Floats, gradient: Floats, rates: Floats) -> None:
    rate, grown, damping = rates[0], rates[1], rates[2]
    momentum, memory = np.float32(MOMENTUM), np.float32(SECOND_MOMENT)
    for i in range(logits.shape[0]):
        for j in range(logits.shape[1]):
            moved = gradient[i, j]
            velocity[i, j] = momentum * velocity[i, j] + moved
            squares[i, j] = memory * squares[i, j] + moved * moved
            logits[i, j] -= rate * velocity[i, j] / (np.sqrt(grown * squares[i, j]) + damping)
