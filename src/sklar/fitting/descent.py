"""Gradient descent on the logits of latent components: the loss against noisy tables, and the steps of a fit. The
derivation: docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sklar.fitting.denoise import Targets, posterior_means
from sklar.fitting.latent import KINDS
from sklar.fitting.margins import Estimates, Ties
from sklar.fitting.steps import CompiledLogits, Logits, attribute_of_contrast, contrast_levels, contrast_tables
from sklar.fitting.steps import contrasts as in_contrasts
from sklar.kernel.cells import Cells, Doubles, Floats, Ints
from sklar.kernel.queries import PARTS as ROW
from sklar.kernel.queries import Distances, Tables
from sklar.machine.spill import room_for

MARGIN_WEIGHT = 3.0
# Up to this many contrasts a step looks at the whole residual, and compiles nothing (`benchmarks.start --crossover`);
# and as many of the residual's rows are held at a time.
SMALL = 256
# Beyond that, the rows of the residual that a step looks at.
_BLOCK = 128
_TOGETHER = 32_768
_FLOOR = 1e-7
# Contrasts up to which the weights of all their pairs are held: 64 MB.
_HELD = 4_096
# Adds a gradient in contrasts, shape (d - m, D) and times D / 2, to that of pairs.
Pull: TypeAlias = Callable[[Floats, Floats], None]

# One step in three looks at the tables, at one part of them: fits are no worse for it.
REST, PARTS = 3, 4
# A component that begins near a cell of a table of four attributes: by so much are logits of the cell's levels larger.
LEAN = 4.0
# How much of its inverse variance a three-way table weighs: most of its cells are noise, which is learned before pairs.
WEIGHT = 0.5


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
    """A fit of a mixture in progress, or several from consecutive seeds. Between steps its `room` is free."""

    def __init__(self, loss: Loss, start: Start, *, fits: int = 1, until: int = 0) -> None:
        base = np.log(np.maximum(loss.levels, np.float32(_FLOOR)))
        seeds = [np.random.SeedSequence([start.seed + number, start.components]) for number in range(fits)]
        generators = [np.random.Generator(np.random.SFC64(seed)) for seed in seeds]
        shape = (start.components, base.size)
        first = np.hstack(
            [(base + np.float32(start.sd) * each.standard_normal(shape, dtype=np.float32)).T for each in generators]
        )
        if isinstance(loss.three, TableLoss):
            first += np.hstack([loss.three.lean(start.components, each) for each in generators])
        if loss.tied is not None:
            own = loss.tied.shared_levels
            first[own] = np.repeat(first[own, ::KINDS], KINDS, axis=1)
        self._loss, self._fits, self._generator = loss, fits, generators[0]
        self._logits = start_logits(loss.cells, first, damping=start.damping, fits=fits, until=until)
        self.contrasts, self.room = self._logits.contrasts, Room(loss.cells, first.shape[1], fits)
        self._blocks: list[int] = []
        self._add_three_way = None if loss.three is None else loss.three.pull(fits)
        self._share = np.full(start.components, 1 / start.components, dtype=np.float32)
        self._pull = room_for(self.contrasts.shape, np.float32)

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
            if loss.tied is not None:
                loss.tied.add(self.probabilities, pull, self._fits)
            margins = found.reshape(-1, self._fits, self._share.size) @ self._share
            self._logits.move(pull, loss.margin_weights[:, None] * (margins - loss.margins[:, None]))


def fits_together(cells: Cells, start: Start, fits: int) -> tuple[int, int | None]:
    """How many fits stay in the cache together, and by how many threads: by one, where steps are short for the GIL."""
    most = _TOGETHER // (start.components * cells.n_levels)
    if cells.n_levels - cells.n_attributes > SMALL or most < 1:
        return 1, None
    return min(most, fits), 1


class Tied:
    """Components in groups of `KINDS`: a group is a class of people, its components are kinds of rows of other tables.

    Attributes of people have the same probabilities in all components of a group. Two attributes of one other table go
    together as in any mixture; attributes of two tables as the means over groups do: given the class of a person, rows
    of different tables are independent. So are two rows of one table. With q the mean over a group of what an attribute
    of K levels has (without none, of sum 1), W the chance of two rows or more, and H classes, the table of two rows is
    sum over groups of W q q^T / H.
    """

    def __init__(self, cells: Cells, ties: Ties) -> None:
        of, begins = np.array(ties.of), cells.offsets - np.arange(cells.n_attributes + 1)
        self._cells, self._twice = cells, ties.twice
        runs = (np.flatnonzero(of == table) for table in range(1, max(ties.of) + 1))
        self._own = [slice(int(begins[run[0]]), int(begins[run[-1] + 1])) for run in runs if run.size]
        self.shared = np.flatnonzero((of == 0)[attribute_of_contrast(cells)])
        self.shared_levels = np.flatnonzero((of == 0)[cells.attribute_of_level])

    def predict(self, found: Floats, rows: slice) -> Floats:
        """Two-way tables of some rows of contrasts, shape (c, D), with all."""
        mean = grouped(found)
        pairs = mean[rows] @ mean.T * np.float32(1 / mean.shape[1])
        for here, there, own, others in self._within(rows, slice(0, len(found))):
            pairs[here, there] = found[own] @ found[others].T * np.float32(1 / found.shape[1])
        return np.asarray(pairs)

    def product(self, residual: Floats, found: Floats, rows: slice, columns: slice) -> Floats:
        """The gradient R F of some rows in the contrasts of some columns, shape (rows, D), times D / 2."""
        rest = residual.copy()
        within = list(self._within(rows, columns))
        for here, there, _, _ in within:
            rest[here, there] = 0
        pull = np.repeat(rest @ grouped(found[columns]), KINDS, axis=1)
        for here, there, _, others in within:
            pull[here] += residual[here, there] @ found[others]
        return np.asarray(pull)

    def _within(self, rows: slice, columns: slice) -> Iterator[tuple[slice, slice, slice, slice]]:
        """The blocks of one table's attributes with themselves: within these rows and columns, and among all."""
        for own in self._own:
            held = [slice(max(own.start, each.start), min(own.stop, each.stop)) for each in (rows, columns)]
            if all(each.start < each.stop for each in held):
                (one, two), (i, j) = held, (rows.start, columns.start)
                yield slice(one.start - i, one.stop - i), slice(two.start - j, two.stop - j), one, two

    def add(self, probabilities: Floats, pull: Floats, fits: int) -> None:
        """Add the gradient of tables of two rows, and give shared attributes one of their group."""
        slopes = np.zeros_like(probabilities)
        for each in self._twice:
            levels, numbers = (self._cells.levels(place) for place in (each.attribute, each.number))
            own = np.delete(np.arange(levels.start, levels.stop), each.none)
            chance = probabilities[numbers][2:, ::KINDS].sum(axis=0)
            mean = grouped(probabilities[own])
            mass = np.maximum(mean.sum(axis=0), np.float32(1e-6))
            mean /= mass
            target, weight = each.shares.astype(np.float32), np.float32(2 * each.precision)
            for some in np.split(np.arange(mean.shape[1]), fits):
                q, often = mean[:, some], chance[some]
                missed = (q * often) @ q.T * np.float32(1 / some.size) - target
                slope = missed @ q
                slope -= (slope * q).sum(axis=0)
                slope *= weight * often / mass[some]
                components = (some[:, None] * KINDS + np.arange(KINDS)).ravel()
                slopes[np.ix_(own, components)] += np.repeat(slope, KINDS, axis=1)
        pull += in_contrasts(slopes, self._cells)
        pull[self.shared] = np.repeat(grouped(pull[self.shared]), KINDS, axis=1)


def grouped(values: Floats) -> Floats:
    """Means over groups of components, shape (rows, D) to (rows, D / KINDS)."""
    return np.asarray(values.reshape(len(values), -1, KINDS).mean(axis=2, dtype=np.float32))


class Loss:
    """Sum over cells of precision x (predicted - target)^2, each pair once, + 3 x mean precision x (margin error)^2.

    In contrasts (`steps`) that is the same sum over pairs of contrasts, and for each attribute A its margin error
    squared times 3 + the sum over the others of precision_AB / K_B: `margin_weights`, beside the targets `margins`.
    What was measured of three-way tables adds its part (`three`).
    """

    def __init__(
        self,
        targets: Targets,
        shrinkage: float,
        weights: CellWeights,
        three: ThreeWayLoss | None = None,
        ties: Ties | None = None,
    ) -> None:
        self.cells, self.three, self._weights = targets.cells, three, weights
        self.tied = None if ties is None else Tied(self.cells, ties)
        self.levels = targets.levels.astype(np.float32)
        self.margins = contrast_levels(targets.levels, self.cells)
        self.margin_weights = np.float32(MARGIN_WEIGHT) + margin_weights(self.cells, targets.precision)
        self._weighted = contrast_tables(targets.mixed(shrinkage), self.cells)
        for first in range(0, len(self._weighted), _BLOCK):
            self._weighted[first : first + _BLOCK] *= weights.rows(first, first + _BLOCK)

    def whole_gradient(self, found: Floats, pull: Floats, room: Room) -> None:
        """The gradient of the tables' part in the contrasts F, shape (d - m, D), times D / 2, into `pull`.

        It is R F, with R = weights (F F^T / D - target), for each fit by itself.
        """
        own, out = (
            each.reshape(len(found), room.fits, each.shape[1] // room.fits).swapaxes(0, 1) for each in (found, pull)
        )
        shape, every = (room.fits, len(found), len(found)), slice(0, len(found))
        residual = room.strip.reshape(shape)
        if self.tied is None:
            np.matmul(own, own.swapaxes(1, 2), out=residual)
            residual *= np.float32(1 / own.shape[2])
        else:
            residual[:] = [self.tied.predict(each, every) for each in own]
        residual *= self._weights.rows(0, len(found))
        residual -= self._weighted
        if self.tied is None:
            np.matmul(residual, own, out=out)
        else:
            out[:] = [self.tied.product(*each, every, every) for each in zip(residual, own, strict=True)]

    def gradient(self, found: Floats, pull: Floats, room: Room, block: int) -> None:
        """The same, estimated without bias from one of N blocks S of rows of R.

        It is N / 2 (R_S F in the rows of S, plus R_S^T F_S in all): the mean of each over all blocks is R F / N.
        """
        c, components = found.shape
        first, last = block * _BLOCK, min((block + 1) * _BLOCK, c)
        if self.tied is not None:
            some, every = slice(first, last), slice(0, c)
            residual = self.tied.predict(found, some) * self._weights.rows(first, last) - self._weighted[some]
            residual *= np.float32(-(-c // _BLOCK) / 2)
            pull[:] = self.tied.product(residual.T, found, every, some)
            pull[some] += self.tied.product(residual, found, some, every)
            return
        residual = np.matmul(found[first:last], found.T, out=room.strip[: (last - first) * c].reshape(last - first, c))
        residual *= self._weights.rows(first, last)
        residual *= np.float32(1 / components)
        residual -= self._weighted[first:last]
        residual *= np.float32(-(-c // _BLOCK) / 2)
        np.matmul(residual.T, found[first:last], out=pull)
        pull[first:last] += np.matmul(residual, found, out=room.rows[first:last])


def step_operations(cells: Cells, start: Start, wider: Sequence[Tables] = ()) -> float:
    """Multiplications and additions in one step of a fit."""
    contrasts = cells.n_levels - cells.n_attributes
    rows = 4.0 * contrasts if contrasts <= SMALL else 6.0 * _BLOCK
    three_way = 6.0 / (PARTS * REST) * sum(tables.n_cells for tables in wider)
    return max(start.components * (contrasts * rows + three_way), 1.0)


class CellWeights:
    """The precision of the table of each pair of contrasts, shape (d - m, d - m); beyond `_HELD`, made row by row."""

    def __init__(self, cells: Cells, precision: Doubles) -> None:
        self._precision, self._attribute = precision.astype(np.float32), attribute_of_contrast(cells)
        self._whole = None
        self._whole = self.rows(0, self._attribute.size) if self._attribute.size <= _HELD else None

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
        self.strip = room_for(fits * min(max(SMALL, _BLOCK), contrasts) * contrasts, np.float32)
        self.rows = room_for((contrasts, components), np.float32)


class _Group(NamedTuple):
    """Tables that share all attributes but one: the coarse levels of these, and of all last attributes (columns)."""

    shared: tuple[slice, ...]
    lasts: Ints
    targets: Floats
    weights: Floats


class TableLoss:
    """Sum over tables t of weight_t |P_t - target_t|^2, with its gradient in contrasts.

    `targets` are probabilities, laid out by `wider`, query after query; `noise` is the loss that the noise of the
    targets alone adds. With p = 1/K + Q^T f the probabilities of an attribute's levels and S the sums over coarse
    levels, of n_g levels each, the coarse ones are S p = n_g / K + (S Q^T) f, and a gradient G in them is (S Q^T)^T G
    in the contrasts f. `near` says where components begin (`_near`).
    """

    def __init__(
        self,
        wider: Sequence[Tables],
        targets: Doubles,
        weights: Doubles,
        noise: float = 0.0,
        near: Sequence[tuple[NDArray[np.bool_], Doubles]] = (),
    ) -> None:
        self._cells, self._near = wider[0].cells, near
        self._n_coarse, self._noise, self._groups = 0, noise, list[_Group]()
        # Of each attribute of each query: its coarse levels and contrasts, S Q^T and n_g / K.
        self._maps: list[tuple[slice, slice, Floats, Floats]] = []
        for query, own, precision in apart(wider, targets.astype(np.float32), weights.astype(np.float32)):
            starts = self._n_coarse + np.concatenate([[0], np.cumsum(query.levels)])
            self._groups += _groups(query, starts, own, precision)
            self._maps += _maps(query, starts)
            self._n_coarse = int(starts[-1])
        # The largest first, each to the part that has the least.
        self._parts: list[list[_Group]] = [[] for _ in range(PARTS)]
        work = [0] * PARTS
        for group in sorted(self._groups, key=lambda each: -each.targets.size):
            least = work.index(min(work))
            self._parts[least].append(group)
            work[least] += group.targets.size

    def lean(self, components: int, generator: np.random.Generator) -> Floats:
        """What logits begin with, shape (d, D): every component near a cell, as many as its table says; or nothing.

        From independence a product of four learns slowly: its gradient is one of three that are near zero. By then a
        fit has learned the noise of pairs.
        """
        first = np.zeros((self._cells.n_levels, components), dtype=np.float32)
        for levels, ends in self._near:
            places = np.searchsorted(ends, (np.arange(components) + generator.random()) * ends[-1] / components)
            first += np.float32(LEAN * (ends[-1] > 0)) * levels[np.minimum(places, ends.size - 1)].T
        return first

    def score(self, found: Floats, margins: Floats) -> tuple[float, float]:
        """The loss of components with these contrasts, less the noise's, and the distance from independence."""
        error, distance = -self._noise, 0.0
        coarse, alone = self._coarse(found), self._coarse(margins[:, None])
        for group in self._groups:
            predicted, independent = _predict(coarse, group), _predict(alone, group)
            error += float(np.sum(group.weights * (predicted - group.targets) ** 2, dtype=np.float64))
            distance += float(np.sum(group.weights * (predicted - independent) ** 2, dtype=np.float64))
        return error, WEIGHT * distance

    def pull(self, fits: int = 1) -> Pull:
        """The gradient of several fits side by side. Every `REST`-th step renews one of `PARTS` parts."""
        slopes, held, steps = np.empty((0, 0, 0), dtype=np.float32), np.empty((0, 0), dtype=np.float32), 0

        def add(found: Floats, pull: Floats) -> None:
            nonlocal slopes, held, steps
            if not steps:
                slopes = np.empty((PARTS, self._n_coarse, found.shape[1]), dtype=np.float32)
            if steps % REST == 0:
                for part in range(PARTS) if not steps else [steps // REST % PARTS]:
                    for own, out in zip(
                        np.split(found, fits, axis=1), np.split(slopes[part], fits, axis=1), strict=True
                    ):
                        self._slopes(own, part, out)
                held, summed = np.zeros_like(pull), slopes.sum(axis=0)
                for coarse, contrasts, spread, _ in self._maps:
                    held[contrasts] += spread.T @ summed[coarse]
            pull += held
            steps += 1

        return add

    def _slopes(self, found: Floats, part: int, out: Floats) -> None:
        """The gradient of one of the parts in the coarse probabilities, times D / 2."""
        coarse, scale = self._coarse(found), np.float32(1 / found.shape[1])
        out[:] = 0.0
        for group in self._parts[part]:
            own, last = [coarse[each] for each in group.shared], coarse[group.lasts]
            both = multiplied(own)
            residual = both @ last.T
            residual *= scale
            residual -= group.targets
            residual *= group.weights
            out[group.lasts] += residual.T @ both
            products, axes = (residual @ last).reshape(*map(len, own), -1), "ijk"[: len(own)]
            for axis, rows in zip(axes, group.shared, strict=True):
                summed, left = products, axes
                for other, factor in [*zip(axes, own, strict=True)][::-1]:
                    if other != axis:
                        rest = left.replace(other, "")
                        summed, left = np.einsum(f"{left}c,{other}c->{rest}c", summed, factor), rest
                out[rows] += summed

    def _coarse(self, found: Floats) -> Floats:
        """Probabilities of coarse levels, shape (coarse levels of all attributes, D); zero where no table has them."""
        probabilities = np.zeros((self._n_coarse, found.shape[1]), dtype=np.float32)
        for coarse, contrasts, spread, base in self._maps:
            probabilities[coarse] = spread @ found[contrasts] + base[:, None]
        return probabilities


def multiplied(own: Sequence[Floats]) -> Floats:
    """Products of what some attributes' levels have in components, shapes (..., levels, D): (..., combinations, D)."""
    both = own[0]
    for each in own[1:]:
        both = (both[..., :, None, :] * each[..., None, :, :]).reshape(*both.shape[:-2], -1, both.shape[-1])
    return both


def _predict(coarse: Floats, group: _Group) -> Floats:
    both = multiplied([coarse[each] for each in group.shared])
    return np.asarray(both @ coarse[group.lasts].T * np.float32(1 / coarse.shape[1]))


def _maps(wider: Tables, starts: Ints) -> Iterator[tuple[slice, slice, Floats, Floats]]:
    offsets = wider.cells.offsets
    for own in np.unique(wider.members).tolist():
        rows = slice(int(starts[own]), int(starts[own + 1]))
        contrasts = slice(int(offsets[own]) - own, int(offsets[own + 1]) - own - 1)
        coarse = np.arange(wider.cells.sizes[own])
        if wider.coarse is not None:
            coarse = wider.coarse[wider.cells.levels(own)]
        members = (coarse[None, :] == np.arange(wider.levels[own])[:, None]).astype(np.float64)
        counts, root = members.sum(axis=1), np.sqrt(coarse.size)
        # An attribute of one level has no contrasts: the slope is that of none.
        slope = (counts / root - members[:, 0]) / max(root - 1, 1e-3)
        spread, base = members[:, 1:] - slope[:, None], counts / coarse.size
        yield rows, contrasts, spread.astype(np.float32), base.astype(np.float32)


def apart(wider: Sequence[Tables], cells: NDArray[Any], tables: NDArray[Any]) -> Iterator[tuple[Tables, Any, Any]]:
    """What several queries have, one after the other: of each its cells, and what it has of each of its tables."""
    parts = (
        np.split(own, np.cumsum(sizes)[:-1])
        for own, sizes in ((cells, [each.n_cells for each in wider]), (tables, [len(each.sizes) for each in wider]))
    )
    return zip(wider, *parts, strict=True)


def _near(query: Tables, shares: Doubles, sds: Doubles, n_rows: int) -> tuple[NDArray[np.bool_], Doubles]:
    """The levels of every cell of tables of four, shape (cells, d), and how many components begin near it, added up.

    A table counts as much as its interaction is longer than noise alone makes it: what smaller tables do not show.
    """
    none = np.zeros(query.n_cells, dtype=np.int64)
    found = Distances(of=query, reference=none).answer(np.rint(shares * n_rows).astype(np.int64)) / ROW
    more = np.maximum(found**2 - sds**2 * np.prod(query.shapes - 1, axis=1), 0.0)
    levels, coarse, mass = np.zeros((none.size, query.cells.n_levels), dtype=bool), np.asarray(query.coarse), []
    for chosen, (first, last), weight in zip(query.members.tolist(), pairwise(query.offsets), more, strict=True):
        own, shape = np.maximum(shares[first:last], 0.0), query.levels[chosen]
        mass.append(weight * own / max(float(own.sum()), 1e-12))
        for attribute, place in zip(chosen, np.unravel_index(np.arange(own.size), shape), strict=True):
            rows = query.cells.levels(attribute)
            levels[first:last, rows] = coarse[rows] == place[:, None]
    return levels, np.cumsum(np.concatenate(mass))


def _groups(wider: Tables, starts: Ints, targets: Floats, weights: Floats) -> Iterator[_Group]:
    """All tables, each in one group: always those of the attributes, all but one, that most of the rest share."""
    levels = [np.arange(first, last) for first, last in pairwise(starts.tolist())]
    left = {table: tuple(chosen) for table, chosen in enumerate(wider.members.tolist())}
    while left:
        shared: dict[tuple[int, ...], list[int]] = {}
        for table, chosen in left.items():
            for most in combinations(chosen, len(chosen) - 1):
                shared.setdefault(most, []).append(table)
        common, tables = max(shared.items(), key=lambda item: (len(item[1]), item[0]))
        lasts, places, numbers = [], [], []
        for table in tables:
            chosen = left.pop(table)
            at = next(place for place, each in enumerate(chosen) if each not in common)
            cells = np.arange(wider.offsets[table], wider.offsets[table + 1]).reshape(wider.shapes[table])
            cells = np.moveaxis(cells, at, -1)
            lasts.append(levels[chosen[at]])
            places.append(cells.reshape(-1, cells.shape[-1]))
            numbers.append(np.full(cells.shape[-1], table))
        rows = tuple(slice(int(starts[each]), int(starts[each + 1])) for each in common)
        own, table_of = targets[np.concatenate(places, axis=1)], np.concatenate(numbers)
        yield _Group(shared=rows, lasts=np.concatenate(lasts), targets=own, weights=weights[table_of])


class ParityLoss:
    """Sum over triples of bits of weight x (predicted - target)^2, with its gradient in contrasts.

    The one weight is the precision of each beside the mean precision of pairs. Arrays have a row for every pair of bits
    and a column for every third one, zero where that is one of the two: every triple stands in three places.
    """

    def __init__(self, estimates: Estimates) -> None:
        cells = estimates.cells
        self._first, self._second = cells.pairs
        # Where the triple of every pair and every third bit stands among all triples, shape (n_pairs, m); -1 for none.
        places = np.full((cells.n_attributes,) * 3, -1)
        i, j, k = cells.triples
        for triple in ((i, j, k), (i, k, j), (j, k, i)):
            places[triple] = np.arange(cells.n_triples)
        place = places[cells.pairs]
        targets = (1 - 2 * estimates.third / estimates.n_rows) / np.sqrt(8.0)
        self._targets = np.where(place >= 0, targets[place], 0.0).astype(np.float32)
        self.weight = 2 / (np.mean(estimates.pair_sd**-2.0) * float(estimates.third_sd[0]) ** 2)
        self._weights = (self.weight * (place >= 0)).astype(np.float32)

    def score(self, found: Floats, margins: Floats) -> tuple[float, float]:
        """Weighted squared distances of what these components predict: from the targets, and from independence."""
        predicted = np.float32(1 / found.shape[1]) * ((found[self._first] * found[self._second]) @ found.T)
        alone = np.outer(margins[self._first] * margins[self._second], margins)
        error, distance = (
            float(np.sum(self._weights * (predicted - other) ** 2, dtype=np.float64)) / 3
            for other in (self._targets, alone)
        )
        return error, distance

    def pull(self, fits: int = 1) -> Pull:
        """The gradient of several fits side by side: of f_i, the sum over pairs (j, k) of residual_ijk f_j f_k."""

        def add(found: Floats, pull: Floats) -> None:
            for own, out in zip(np.split(found, fits, axis=1), np.split(pull, fits, axis=1), strict=True):
                pairs = own[self._first] * own[self._second]
                residual = pairs @ own.T
                residual *= np.float32(1 / own.shape[1])
                residual -= self._targets
                residual *= self._weights
                out += residual.T @ pairs

        return add


ThreeWayLoss: TypeAlias = TableLoss | ParityLoss


def three_way_loss(estimates: Estimates, *, shrunk: bool = False) -> ThreeWayLoss | None:
    """What three-way tables or parities of triples add to a fit's loss, weighed by inverse variances; None for none.

    Tables are centered to a total of one, since rows without a level may be missing from them. If `shrunk`, they
    are the empirical-Bayes means of their cells, which find those that nobody has.
    """
    wider, n_rows = estimates.wider, estimates.n_rows
    if not wider:
        return ParityLoss(estimates) if estimates.third.size else None
    shares, sizes = estimates.third / n_rows, np.concatenate([tables.sizes for tables in wider])
    missing = 1 - np.add.reduceat(shares, np.cumsum(sizes) - sizes)
    weights = WEIGHT * estimates.third_sd**-2.0 / np.mean(estimates.pair_sd**-2.0)
    noise = float(weights @ (sizes * (estimates.third_sd / n_rows) ** 2))
    shares += np.repeat(missing / sizes, sizes)
    if shrunk:
        starts = np.cumsum(sizes) - sizes
        means = posterior_means(shares, np.repeat(estimates.third_sd / n_rows, sizes), starts)
        totals = np.maximum(np.add.reduceat(means, starts), 1e-12)
        shares = means / np.repeat(totals, sizes)
    found = apart(wider, shares, estimates.third_sd)
    near = [_near(query, own, sds, n_rows) for query, own, sds in found if query.order == 4]
    return TableLoss(wider, shares, weights, noise, near)
