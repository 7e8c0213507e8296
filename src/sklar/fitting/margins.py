"""Noisy tables to one estimate of every count, and to margins that are probabilities: post-processing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklar.budget.certificate import Measured, is_of_schema, stage_numbers
from sklar.budget.plan import margin_sd, sides_of
from sklar.kernel.cells import MANY_CELLS, Cells, Doubles, Ints, Whole
from sklar.kernel.queries import Block, Parities, Shares, Tables
from sklar.kernel.theorems import Mechanism, noise_variance
from sklar.machine.spill import room_for
from sklar.machine.threads import side_by_side
from sklar.public.tree import Tree

_TOGETHER = 250_000
# Cells whose sums take as long as it takes to begin threads.
_THREADED = 500_000
# Noisy counts of tables (or parities), and the variance of each table's noise.
_Look: TypeAlias = tuple[Whole, Doubles]
# What is as good as nothing.
_TINY = 1e-9
# Decimal digits that are stored of a share of held-out error.
GAIN_DIGITS = 3
# What is fitted, of which arrays are stored.
Fitted = TypeVar("Fitted")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """Unbiased estimates of all counts from all measurements, with the standard deviations of their noise.

    `one_way` has shape (d,) and `pairs` (n_cells,), both laid out by `cells`; very many cells are in single precision.
    Standard deviations are one number per table. `third` are the cells of tables of three attributes, then of four,
    laid out by `wider`.

    Where parities were measured (`crossed`), tables follow from them: `pair_sd` is the noise of a table's interaction
    alone, `one_way_sd` that of a contrast of two levels, and `third` are parities of all triples of bits, if any.
    """

    cells: Cells
    n_rows: int
    one_way: Doubles
    one_way_sd: Doubles
    pairs: Doubles
    pair_sd: Doubles
    crossed: bool = False
    wider: tuple[Tables, ...] = ()
    third: Doubles = field(default_factory=lambda: np.empty(0))
    third_sd: Doubles = field(default_factory=lambda: np.empty(0))
    ties: Ties | None = None


class TwoRows(NamedTuple):
    """What was measured of one attribute in two rows of a person: the attribute, the number of these rows and the code
    of none, by their places in the joint table; shares of people, shape (K, K), symmetric, and their inverse variance
    beside the mean one of two-way tables.
    """

    attribute: int
    number: int
    none: int
    shares: Doubles
    precision: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ties:
    """What is known of the attributes of a joint table: the table that each is of (`Tree.ties`), and of two rows."""

    of: tuple[int, ...]
    twice: tuple[TwoRows, ...]


def pool(measured: Measured, *, first: bool = False) -> Estimates:
    """Average what blocks, or those of the `first` stage, say of the same tables, weighed by inverse variances."""
    stages = zip(measured.blocks, stage_numbers(measured.blocks), strict=True)
    blocks = [block for block, stage in stages if stage == 1 or not first]
    estimates = pool_blocks(blocks, measured.certificate.mechanism, measured.n_rows)
    return estimates if measured.tree is None else _tied(estimates, measured.tree, blocks)


def _tied(estimates: Estimates, tree: Tree, blocks: Sequence[Block]) -> Estimates:
    """The same with what is known of linked tables."""
    names, twice, n = tree.joint.measured.names, list[TwoRows](), estimates.n_rows
    held = {block.query.what: block.in_rows for block in blocks if isinstance(block.query, Shares)}
    for side in (side for side in sides_of(tree) if side.kind == "two" and side.what in held):
        block, schema = held[side.what], side.of.schema
        for ((place, _), (size,)), cells, scale in zip(side.tables, block.by_scale(), block.scales, strict=True):
            attribute = names.index(f"{side.of.name}.{schema.names[place]}")
            shares = np.zeros((size, size))
            # A pair without order is two cells, half of it in each.
            shares[np.triu_indices(size)] = cells / (2 * n)
            none = tree.joint.measured.attributes[attribute].special_codes[-1]
            precision = 2 * float(scale) ** -2 / float(np.mean(estimates.pair_sd**-2.0))
            twice.append(TwoRows(attribute, names.index(side.of.name), none, shares + shares.T, precision))
    return replace(estimates, ties=Ties(of=tree.ties, twice=tuple(twice)))


def pool_blocks(blocks: Sequence[Block], mechanism: Mechanism, n_rows: int | None) -> Estimates:
    """The same of these blocks. `n_rows` is the public number of rows, where neighbors share it."""
    blocks = [block.in_rows for block in blocks]
    rows = estimate_rows(blocks, mechanism, n_rows)
    # What blocks say of all tables, or parities, of each order; not those of a search, nor of chosen tables.
    looks: dict[int, list[_Look]] = {0: [], 1: [], 2: [], 3: []}
    for block in blocks:
        query = block.query
        if isinstance(query, Parities):
            for order, (values, scale) in enumerate(zip(block.by_scale(), block.scales.tolist(), strict=True), 1):
                looks[order].append((values, np.full(values.size, scale**2)))
        elif isinstance(query, Tables) and is_of_schema(block) and query.sets is None and query.coarse is None:
            looks[query.order].append((block.values, noise_variance(mechanism, block.scales)))
    queries = [block.query for block in blocks if isinstance(block.query, Tables | Parities) and is_of_schema(block)]
    cells = queries[0].cells
    if any(isinstance(query, Parities) for query in queries):
        (ones, ones_sd), (odd, odd_sd), (third, third_sd) = (
            _average(looks[order], np.ones(sum(each.size for _, each in looks[order][:1]), dtype=np.int64))
            for order in (1, 2, 3)
        )
        return Estimates(
            cells=cells,
            n_rows=rows,
            one_way=np.column_stack([rows - ones, ones]).ravel(),
            one_way_sd=math.sqrt(2.0) * ones_sd,
            pairs=crossed_tables(cells, ones, odd, rows),
            pair_sd=odd_sd,
            crossed=True,
            third=third,
            third_sd=third_sd,
        )
    one_way, one_way_sd = _average(looks[1], cells.sizes)
    pairs, pair_sd = _average(looks[2], cells.pair_sizes)
    estimates = Estimates(
        cells=cells, n_rows=rows, one_way=one_way, one_way_sd=one_way_sd, pairs=pairs, pair_sd=pair_sd
    )
    chosen = [(each, each.query) for each in blocks if isinstance(each.query, Tables) and each.query.sets is not None]
    if not chosen:
        return estimates
    third, sds = (np.concatenate(own) for own in zip(*((each.values, each.scales) for each, _ in chosen), strict=True))
    wider = tuple(query for _, query in chosen)
    return replace(estimates, wider=wider, third=third.astype(np.float64), third_sd=sds)


def _average(looks: Sequence[_Look], sizes: Ints) -> tuple[Doubles, Doubles]:
    """The average of tables with these numbers of cells by inverse variance, and the sd of its noise, one per table."""
    if not looks:
        return np.empty(0), np.empty(0)
    whole = np.sum([1 / variances for _, variances in looks], axis=0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # Noise leaves no digit of a count beyond single precision, and very many cells would take twice the room.
    average = room_for(int(offsets[-1]), np.float32 if offsets[-1] > MANY_CELLS else np.float64)

    def fill(tables: tuple[int, int]) -> None:
        first, last = tables
        run = slice(int(offsets[first]), int(offsets[last]))
        for values, variances in looks:
            shares = 1 / (variances[first:last] * whole[first:last])
            average[run] += values[run] * np.repeat(shares, sizes[first:last])

    # Runs of tables: weights of all cells at once would take as much memory as the cells.
    side_by_side(fill, table_runs(offsets))
    return average, np.asarray(whole**-0.5)


def crossed_tables(cells: Cells, ones: Doubles, odd: Doubles, n_rows: float) -> Doubles:
    """The two-way tables of bits with these ones, shape (m,), and parities of pairs, (n_pairs,): shape (n_cells,)."""
    first, second = cells.pairs
    both = (ones[first] + ones[second] - odd) / 2
    return np.column_stack([n_rows - both - odd, ones[second] - both, ones[first] - both, both]).ravel()


def expected_noise(estimates: Estimates) -> float:
    """The total variation to expect of the noise in a two-way table, on average: 0.4 cells sd / n, at most 1."""
    cells = estimates.cells
    variation = np.minimum(0.4 * cells.pair_sizes * estimates.pair_sd / estimates.n_rows, 1.0)
    return float(np.mean(variation)) if cells.n_pairs else 1.0


def with_alike(cells: Cells, work: Callable[[Ints], None]) -> None:
    """Do light work on every group of `Cells.alike`: side by side where there is enough of it to pay for threads."""
    if cells.n_cells > _THREADED:
        side_by_side(work, cells.alike())
        return
    for members in cells.alike():
        work(members)


def table_runs(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Runs of tables, which begin at these cells, to work on together: the first one, and that after the last."""
    starts = np.searchsorted(offsets, np.arange(0, offsets[-1], _TOGETHER))
    return pairwise(np.unique(np.append(starts, offsets.size - 1)).tolist())


def estimate_rows(blocks: Sequence[Block], mechanism: Mechanism, n_rows: int | None) -> int:
    """The public number of rows; under add-remove, the inverse-variance average of all noisy totals, at least 1."""
    if n_rows is not None:
        return n_rows
    weighted, weights = 0.0, 0.0
    for block in blocks:
        query = block.query
        if isinstance(query, Tables) and query.order <= 2 and is_of_schema(block):
            totals = np.add.reduceat(block.values, query.offsets[:-1], dtype=np.float64)
            # A sum of cells has the variance of each cell times their number.
            weight = 1 / (query.sizes * noise_variance(mechanism, block.scales))
            weighted += float(weight @ totals)
            weights += float(weight.sum())
    return max(1, round(weighted / weights))


def margins(estimates: Estimates) -> Doubles:
    """Probabilities of the levels of each attribute, shape (d,): the averaged counts over n, on the simplex."""
    return project_levels(average_margins(estimates)[0] / estimates.n_rows, estimates.cells)


def average_margins(estimates: Estimates) -> tuple[Doubles, Doubles]:
    """The best linear estimate of level counts, shape (d,), and the sd of its noise before centering, shape (m,).

    One-way tables and sums over the K_j levels of two-way ones, of variance K_j sigma_ij^2, are averaged and centered.
    """
    cells, attribute = estimates.cells, estimates.cells.attribute_of_level
    if estimates.crossed:
        return estimates.one_way, estimates.one_way_sd
    precision = estimates.pair_sd**-2.0
    sd = margin_sd(cells, estimates.one_way_sd, precision)
    weights = cells.symmetric(precision) / cells.sizes[None, :]
    np.fill_diagonal(weights, estimates.one_way_sd**-2.0)
    weights *= sd[:, None] ** 2
    counts = implied_counts(estimates.pairs, cells)
    counts[np.arange(cells.n_levels), attribute] = estimates.one_way
    missing = estimates.n_rows - np.add.reduceat(counts, cells.offsets[:-1], axis=0)
    centering = (weights * missing).sum(axis=1) / cells.sizes
    return np.einsum("ij,ij->i", weights[attribute], counts) + centering[attribute], sd


def implied_counts(pairs: Doubles, cells: Cells, along: Doubles | None = None) -> Doubles:
    """What every two-way table says of the counts of its levels, shape (d, m); zero for a level's own attribute.

    It is a table's sum over the other attribute's levels, times what these have in `along`, shape (d,), if given.
    """
    factors = np.ones(cells.n_levels) if along is None else along
    counts = room_for((cells.n_levels, cells.n_attributes), np.float64)

    def add(members: Ints) -> None:
        tables = pairs[cells.places(members)]
        height, width = tables.shape[1:]
        first, second = (each[members][:, None] for each in cells.pairs)
        rows, columns = (cells.offsets[each] + np.arange(k) for each, k in ((first, height), (second, width)))
        counts[rows, second] = np.einsum("trc,tc->tr", tables, factors[columns])
        counts[columns, first] = np.einsum("trc,tr->tc", tables, factors[rows])

    with_alike(cells, add)
    return counts


def project(points: Doubles, sums: ArrayLike = 1.0) -> Doubles:
    """The nearest points with non-negative entries and these sums, along the last axis (Held, Wolfe, Crowder 1974)."""
    ordered = np.sort(points, axis=-1)[..., ::-1]
    excess = (np.cumsum(ordered, axis=-1) - np.asarray(sums)) / np.arange(1, points.shape[-1] + 1)
    # The entries that stay positive are the largest ones, and the first one does unless all must vanish.
    kept = np.count_nonzero(ordered > excess, axis=-1)[..., None].clip(1)
    return np.asarray(np.maximum(points - np.take_along_axis(excess, kept - 1, axis=-1), 0.0))


def drawn_to(noisy: Doubles, expected: Doubles, variance: float) -> Doubles:
    """A noisy table drawn to what is expected, wholly where it is within two standard deviations of noise from that."""
    away = noisy * (expected.sum() / max(noisy.sum(), _TINY)) - expected if noisy.sum() > 0 else np.zeros_like(noisy)
    least = (noisy.size + 2 * math.sqrt(2 * noisy.size)) * variance
    share = max(0.0, 1 - least / max(float(np.sum(away**2)), _TINY**2))
    table = project((expected + share * away).ravel(), expected.sum()).reshape(noisy.shape)
    # What noise has emptied keeps a little of what is expected.
    return np.asarray(np.maximum(table, 1e-2 * expected))


def project_levels(levels: Doubles, cells: Cells) -> Doubles:
    """Every attribute's levels moved to the nearest probabilities, shape (d,)."""
    projected = np.empty_like(levels)
    for size in np.unique(cells.sizes):
        at = cells.offsets[:-1][cells.sizes == size][:, None] + np.arange(size)
        projected[at] = project(levels[at])
    return projected


def scale_levels(weights: Doubles, cells: Cells) -> Doubles:
    """Weights of levels, shape (..., d), divided by their sum within each attribute."""
    totals = np.add.reduceat(weights, cells.offsets[:-1], axis=-1)
    return np.asarray(weights / totals[..., cells.attribute_of_level])


def digits(blocks: Sequence[Block], n_rows: int) -> int:
    """How many binary digits of a fitted number matter: the last is a sixteenth of the least noise on a share of rows.

    The others would say nothing, and could hide anything: files hold zeros there. A function of what is public.
    """
    least = min(float(block.scales.min(initial=np.inf)) / getattr(block.query, "each", 1) for block in blocks)
    return int(np.clip(math.ceil(math.log2(n_rows / least)) + 4, 12, 23))


def as_stored(fitted: Fitted, bits: int) -> Fitted:
    """The same with all its numbers rounded to so many significant binary digits."""
    whole: Any = fitted
    arrays = {each.name: getattr(whole, each.name) for each in fields(whole)}
    held = {name: rounded(own, bits) for name, own in arrays.items() if isinstance(own, np.ndarray)}
    return cast(Fitted, replace(whole, **held))


def rounded(values: NDArray[Any], bits: int) -> NDArray[Any]:
    """Numbers with so many significant binary digits, the nearest; infinite ones stay.

    >>> rounded(np.array([1.0, -1.26, 0.3], dtype=np.float32), 3).tolist()
    [1.0, -1.25, 0.3125]
    """
    kind, places = (np.uint32, 24) if values.dtype == np.float32 else (np.uint64, 53)
    whole: Any = values.view(kind)
    half = kind(1 << (places - bits - 1))
    # Of the bits as a whole number a carry goes into the exponent, as it must.
    return np.asarray(((whole + half) & ~(2 * half - kind(1))).view(values.dtype))
