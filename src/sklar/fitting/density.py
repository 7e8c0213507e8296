"""Noisy tables to densities along an axis, and to the shapes of numbers inside their bins: post-processing. More:
docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np

from sklar.budget.certificate import Measured, is_of_schema
from sklar.budget.plan import INSIDE, inside_places, margin_sd
from sklar.budget.search import Finding, Ladder, Units, asked_of, ladder_of, next_cells
from sklar.draw.decode import Rounding, Shape
from sklar.fitting.margins import drawn_to, estimate_rows, project
from sklar.kernel.cells import Doubles, Ints
from sklar.kernel.queries import Block, Parities, Shares, Tables
from sklar.public.outputs import grain
from sklar.public.schema import Attribute

# What one more piece of constant density must explain, in squared standard errors.
_PENALTY = 6.0
# A grain that is this many standard errors above its neighbors is a heap.
_HEAP = 4.0
# Numbers that end in 0 or 5 are more often heaps than others: less is asked of them.
_ROUND, _HEAP_ROUND, _PENALTY_ROUND = 5, 3.0, 1.0
# Larger groups of siblings are grains of one cell, in which only heaps are looked for.
_MOST_SIBLINGS = 128
# Windows of cells of the first table, and the standard errors by which one shows rows: anywhere, and next to others.
# Simulated tables of 130 cells: noise alone showed rows far out in none of 1,500 (4.5: in one). A far cell of 4, 5, 6
# or 7 standard errors was seen in 7, 28, 69 and 92% of 300 (4.5: 27, 69, 94 and 99%), as Phi(z - 5.5) has it.
_WINDOWS, _SURE, _NEXT, _BEYOND = (1, 2, 4, 8), 5.5, 1.5, 3.5
_PARTS, _SURE_PARTS = (*_WINDOWS, 16, 32, 64, 128), 4.5
# Numbers end where the next cell has, by this many standard errors, less than this part of the rows of the last one.
_SURELY, _SHARP = 2.0, 0.25
# Beyond the support, what is too little to be sure of: at least this, and near the largest of as many empty cells.
_TAIL, _TAIL_SLACK = 2.0, 0.3
# By how much the logarithm of a density may change over a bin, so that its mean is the measured one, and in how many
# parts.
_STEEP, _FINE = 100.0, 64
# Straight lines that stand for one curve of the interpolation.
_LINES = 8
# How much a level beyond the support that noise alone filled is feared, were it next to the support.
_FAR = 10.0
# Fewer rows of a decade, in standard errors, say nothing about its rounding.
_DECADE = 4.0
# The error of a mean inside a bin as a part of its width, where nothing inside was measured: of public edges, and of
# bins that a search found; and the rows beyond what it saw, in its noise. Chosen on the ten shapes of
# experiments.inference, where 95% intervals of limited means then hold 97% of the time or more.
_UNKNOWN, _UNSEEN = (0.15, 0.1), 1.5
# How much more it weighs that chances of numbers add up to those of their bin than that they are even.
_FIRMLY = 1e3
# Rows of an outer bin of public edges, in standard errors, that are not noise alone.
_SEEN = 2.5
# The largest numbers that floats hold one by one.
_EXACT = 2.0**53


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Density:
    """Rows of an attribute along its axis, in grains, as noisy tables have them.

    Piece i, from `edges[i]` to `edges[i + 1]`, holds `masses[i]` rows, spread evenly. `heaps` are grains that stand
    out. Rows were seen from `first` up to `last`; `tails` are ranges beyond that may hold some.
    """

    edges: Units
    masses: Doubles
    heaps: Ints
    first: int
    last: int
    tails: tuple[tuple[int, int], ...] = ()


def _pooled(ladder: Ladder, tables: Sequence[Ints], scale: float) -> tuple[list[Units], list[Doubles], list[Doubles]]:
    """Edges of cells, each cell's rows by its own count and by those of its parts, and the variance of that, table by
    table.
    """
    cells = next_cells(ladder, tables[:-1], scale)
    below, variances = [tables[-1].astype(np.float64)], [np.full(tables[-1].size, scale**2)]
    for level in range(len(tables) - 2, -1, -1):
        starts = np.searchsorted(cells[level + 1], cells[level][:-1])
        parts, noise = np.add.reduceat(below[0], starts), np.add.reduceat(variances[0], starts)
        variance = 1 / (scale**-2 + 1 / noise)
        below.insert(0, variance * (tables[level] / scale**2 + parts / noise))
        variances.insert(0, variance)
    return cells, below, variances


def rows_beyond(measured: Measured, name: str, low: float, high: float) -> tuple[float, float] | None:
    """Rows whose number lies outside [low, high) by the first table of its search, and the standard error; None where
    a file did not keep it. Cells that an end cuts count in full.
    """
    if (name, "domain") not in (answers := _answers(measured)):
        return None
    finding, tables = answers[name, "domain"]
    ladder = ladder_of(asked_of(finding, measured.schema.attribute(name)))
    cells, rows, variances = _pooled(ladder, tables, finding.scale)
    edges = ladder.axis(cells[0])
    outside = (edges[:-1] < low) | (edges[1:] > high)
    # The outermost cells hold what lies beyond the bounds, too.
    outside[0], outside[-1] = outside[0] | (low > -np.inf), outside[-1] | (high < np.inf)
    return float(rows[0][outside].sum()), float(np.sqrt(variances[0][outside].sum()))


def estimate_density(ladder: Ladder, tables: Sequence[Ints], scale: float) -> Density:
    """The density that noisy tables of a search show."""
    cells, below, variances = _pooled(ladder, tables, scale)
    first, last = _support(below[0], variances[0])
    low, high = int(cells[0][first]), int(cells[0][last])
    if first < last:
        mirrored = [-each[::-1] for each in cells], [each[::-1] for each in below], [each[::-1] for each in variances]
        low, high = -_reach(*mirrored, cells[0].size - 1 - first), _reach(cells, below, variances, last)
        first, last = int(np.searchsorted(cells[0], low, "right")) - 1, int(np.searchsorted(cells[0], high))
    # Onto the same sum: clipping alone would turn the noise of empty cells into rows.
    masses, own = np.zeros(below[0].size), slice(first, last)
    if first < last:
        masses[own] = project(below[0][own], max(float(below[0][own].sum()), 0.0))
    for level in range(1, len(cells)):
        masses = _descend(cells[level - 1], masses, cells[level], below[level], variances[level], (low, high))
    return Density(
        edges=cells[-1],
        masses=masses,
        heaps=_heaps(cells[-1], masses, np.sqrt(variances[-1])),
        first=low,
        last=high,
        tails=_tails(cells[0], below[0], variances[0], last),
    )


def _descend(
    parents: Units, masses: Doubles, edges: Units, rows: Doubles, variances: Doubles, within: tuple[int, int]
) -> Doubles:
    """The rows of a table's cells within two ends, which add up to those of the cells above: pieces of constant
    density.
    """
    outer = np.searchsorted(edges, within[0], "right") - 1, np.searchsorted(edges, within[1])
    starts = np.clip(np.searchsorted(edges, parents), *outer).tolist()
    found = np.zeros(rows.size)
    for mass, own in zip(masses.tolist(), map(slice, starts, starts[1:]), strict=False):
        if own.stop - own.start <= 1:
            found[own] = mass
            continue
        widths, noise = np.diff(edges[own.start : own.stop + 1]).astype(np.float64), variances[own]
        fitted = rows[own] + (mass - rows[own].sum()) * noise / noise.sum()
        if fitted.size > _MOST_SIBLINGS:
            level = max(float(fitted.sum()), 0.0) / widths.sum() * widths
            needed = max(_HEAP, np.sqrt(2 * np.log(fitted.size)) + 1.5)
            apart = np.flatnonzero(fitted - level >= needed * np.sqrt(noise))
            ends = np.unique(np.concatenate([apart, apart + 1, [fitted.size]]))[int(0 in apart) :]
        else:
            alone = np.where((widths == 1) & (edges[own] % _ROUND == 0), _PENALTY_ROUND, _PENALTY)
            ends = _partition(fitted, noise, widths, alone)
        first = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        kept = project(np.add.reduceat(fitted, first), max(mass, 0.0))
        found[own] = np.repeat(kept / np.add.reduceat(widths, first), ends - first) * widths
    return found


def _partition(rows: Doubles, variances: Doubles, widths: Doubles, alone: Doubles) -> Ints:
    """Where each run of siblings of constant density ends in the best partition: least squares, and a penalty a run."""
    weights, size = 1 / variances, rows.size
    squares, crossed, across = (
        np.concatenate([[0.0], np.cumsum(each * weights)]) for each in (rows**2, rows * widths, widths**2)
    )
    best, back = np.zeros(size + 1), np.zeros(size + 1, dtype=np.int64)
    for end in range(1, size + 1):
        slope = np.maximum(crossed[end] - crossed[:end], 0.0)
        costs = best[:end] + squares[end] - squares[:end] - slope**2 / (across[end] - across[:end]) + _PENALTY
        costs[end - 1] += alone[end - 1] - _PENALTY
        back[end] = np.argmin(costs)
        best[end] = costs[back[end]]
    ends = [size]
    while back[ends[-1]] > 0:
        ends.append(int(back[ends[-1]]))
    return np.array(ends[::-1], dtype=np.int64)


def _heaps(edges: Units, masses: Doubles, sd: Doubles) -> Ints:
    """Single grains whose rows exceed what their neighbors' densities explain."""
    density = masses / np.diff(edges)
    around = np.maximum(np.append(density[1:], 0.0), np.insert(density[:-1], 0, 0.0))
    needed = np.where(edges[:-1] % _ROUND == 0, _HEAP_ROUND, _HEAP)
    return np.flatnonzero((np.diff(edges) == 1) & (masses - around >= needed * sd))


def _support(
    rows: Doubles, variances: Doubles, sizes: Sequence[int] = _WINDOWS, sure: float = _SURE
) -> tuple[int, int]:
    """The first and the last edge (as places) between which rows were seen; the same edge twice where none were.

    Windows that stand out from noise show where; those next to them need not stand out as far. All are trimmed.
    """
    upto = np.concatenate([[0.0], np.cumsum(rows)])
    noise = np.concatenate([[0.0], np.cumsum(variances)])

    def z(start: int, end: int) -> float:
        return float((upto[end] - upto[start]) / np.sqrt(noise[end] - noise[start]))

    def trimmed(start: int, end: int) -> tuple[int, int]:
        first = max(range(start, end), key=lambda begin: z(begin, end))
        return first, max(range(first + 1, end + 1), key=lambda stop: z(first, stop))

    windows = [(start, start + size) for size in sizes for start in range(rows.size - size + 1)]
    shown = [trimmed(*window) for window in windows if z(*window) >= sure]
    if not shown:
        return 0, 0
    first, last = min(start for start, _ in shown), max(end for _, end in shown)
    return rows.size - _grown(rows[::-1], variances[::-1], rows.size - first), _grown(rows, variances, last)


def _reach(cells: Sequence[Units], rows: Sequence[Doubles], variances: Sequence[Doubles], last: int) -> int:
    """The edge up to which numbers lie, by cells of all tables, of the first of which they were seen up to `last`.

    Rows are seldom seen to their very last: one cell more is taken, but where that surely has less than a part of the
    rows of the last one. There numbers end inside of the last: its parts say where.
    """
    start, stop, ends = 0, rows[0].size, cells[0][last - 1 : last + 1]
    for level, (edges, own, noise) in enumerate(zip(cells, rows, variances, strict=True)):
        if level:
            start, stop = np.searchsorted(edges, ends).tolist()
            if not 1 < stop - start <= _MOST_SIBLINGS:
                break
            last = start + (_support(own[start:stop], noise[start:stop], _PARTS, _SURE_PARTS)[1] or stop - start)
        if last < stop and not _ending(own, noise, last):
            return int(edges[last + 1])
        ends = edges[last - 1 : last + 1]
    return int(ends[1])


def _ending(rows: Doubles, variances: Doubles, last: int) -> bool:
    """Whether the next cell surely has less than a part of the rows of the one before it."""
    most, least = (rows[at] + sign * _SURELY * np.sqrt(variances[at]) for at, sign in ((last, 1), (last - 1, -1)))
    return bool(most < _SHARP * least)


def _grown(rows: Doubles, variances: Doubles, last: int) -> int:
    """The edge up to which windows next to what was seen, up to `last`, have rows as well."""
    while True:
        for size in _WINDOWS:
            z = np.cumsum(rows[last : last + size]) / np.sqrt(np.cumsum(variances[last : last + size]))
            if z.size == size and z[-1] >= (_BEYOND if _ending(rows, variances, last) else _NEXT):
                last += int(np.argmax(z)) + 1
                break
        else:
            return last


def _tails(edges: Units, rows: Doubles, variances: Doubles, last: int) -> tuple[tuple[int, int], ...]:
    """Up to two ranges of one or two cells beyond the support that may hold rows, in order."""
    least = max(_TAIL, float(np.sqrt(2 * np.log(max(rows.size - last, 1)))) - _TAIL_SLACK)
    windows = [(start, start + size) for size in (1, 2) for start in range(last, rows.size - size + 1)]
    z = [float(rows[start:end].sum() / np.sqrt(variances[start:end].sum())) for start, end in windows]
    likely = sorted((-own, *window) for own, window in zip(z, windows, strict=True) if own > least)
    found = [(start, end) for _, start, end in likely[:1]]
    apart = [(start, end) for _, start, end in likely[1:] if start >= found[0][1] or end <= found[0][0]]
    return tuple((int(edges[start]), int(edges[end])) for start, end in sorted([*found, *apart[:1]]))


def searched(findings: Sequence[Finding], blocks: Sequence[Block]) -> Iterator[tuple[Finding, list[Block]]]:
    """The blocks of each search, in order."""
    rest = (block for block in blocks if not is_of_schema(block))
    for finding in findings:
        if own := list(islice(rest, finding.tables)):
            yield finding, own


def rows_inside(measured: Measured) -> dict[int, tuple[Doubles, float]]:
    """First moments inside bins, in rows, shape (levels,), and their standard error, by the attribute's place: a level
    with m rows whose numbers lie, on average, the share s of the way from its bin's lower edge to the upper has m s.
    """
    places = inside_places(measured.schema)
    for block in measured.counted:
        if isinstance(block.query, Shares) and block.query.what == INSIDE:
            tables = block.by_scale()
            # Each table was seen twice.
            both = zip(places, tables, tables[len(places) :], block.scales, strict=False)
            return {place: ((one + two) / 2, float(sd) / 2**0.5) for place, one, two, sd in both}
    return {}


def _answers(measured: Measured) -> dict[tuple[str, str], tuple[Finding, list[Ints]]]:
    """The noisy tables of every search for numbers, by attribute and what it looks for."""
    return {
        (finding.attribute, finding.of): (finding, [np.asarray(block.values, dtype=np.int64) for block in own])
        for finding, own in searched(measured.certificate.domains, measured.blocks)
        if finding.bounds is not None
    }


def fit_shapes(measured: Measured, margins: Doubles) -> dict[str, Shape]:
    """The shapes of all attributes on an axis, by name. `margins` are probabilities of levels, shape (d,)."""
    schema, answers, inside = measured.schema, _answers(measured), rows_inside(measured)
    n = estimate_rows(measured.counted, measured.certificate.mechanism, measured.n_rows)
    errors = _standard_errors(measured, n)
    shapes = {}
    for index, attribute in enumerate(schema.attributes):
        if not attribute.binned or max(map(abs, attribute.edges)) >= _EXACT:
            continue
        own = margins[schema.cells.levels(index)]
        rows, moments = n * own[attribute.bin_codes], inside.get(index)
        moments = moments and (moments[0][attribute.bin_codes], moments[1])
        if (attribute.name, "domain") not in answers:
            shape = _with_means(attribute, interpolated(attribute, own), rows, moments)
            z, edges = own[attribute.bin_codes] / errors[index], np.asarray(attribute.edges, dtype=np.float64)
            shapes[attribute.name] = replace(shape, inside=_seen_bins(z, edges))
            continue
        finding, tables = answers[attribute.name, "domain"]
        ladder = ladder_of(asked_of(finding, attribute))
        density = estimate_density(ladder, tables, finding.scale)
        shape = _by_tree(attribute, own, ladder, density, own[attribute.bin_codes] / errors[index])
        if (attribute.name, "rounding") in answers:
            finding, tables = answers[attribute.name, "rounding"]
            shape = replace(shape, rounding=_rounding(attribute, ladder, tables[0], finding.scale, density))
        shapes[attribute.name] = _with_means(attribute, shape, rows, moments, _UNSEEN * finding.scale)
    if measured.tree is not None:
        held = {block.query.what: block for block in measured.counted if isinstance(block.query, Shares)}
        for branch in measured.tree.branches[1:]:
            at = schema.names.index(branch.name)
            own = margins[schema.cells.levels(at)][schema.attributes[at].bin_codes]
            known, single = shapes[branch.name], held.get(f"{branch.name}: number")
            shape = _numbers(np.array(branch.bins), own, single, n)
            shapes[branch.name] = replace(shape, means=known.means, errors=known.errors)
    return shapes


def _numbers(bins: Ints, margins: Doubles, single: Block | None, n_rows: int) -> Shape:
    """The shape of numbers of rows: chances that change least from each number to the next, within bins with these
    margins; drawn to what was measured of `single` numbers, as far as that is no noise. None of nobody stands alone.
    """
    of, steps = np.repeat(np.arange(margins.size), np.diff(bins)), np.diff(np.eye(bins[-1]), axis=0)[1:]
    held = _FIRMLY * (of == np.arange(margins.size)[:, None])
    even = np.linalg.solve(held.T @ held + steps.T @ steps, held.T @ margins * _FIRMLY)
    law = np.maximum(even, 1e-9)
    if single is not None:
        law = drawn_to(single.values / n_rows, law, float(single.scales[0] / n_rows) ** 2)
    law = law / np.bincount(of, weights=law)[of]
    ends = list(pairwise(bins.tolist()))
    heights = [np.concatenate([[0.0], np.cumsum(law[low : high - 1]), [1.0]]) for low, high in ends]
    return _joined([np.arange(low, high + 1.0) for low, high in ends], heights)


def _with_means(
    attribute: Attribute,
    shape: Shape,
    rows: Doubles,
    moments: tuple[Doubles, float] | None,
    unseen: float | None = None,
) -> Shape:
    """The shape with the means inside bins, and drawn so that numbers have them: the best of what it says by itself, up
    to an error that grows with the bin's width, and of the first moments that were measured, if any, up to noise.

    `rows` and moments are by bin, shape (b,). Of bins that a search found, so many rows are `unseen` and lie between
    the outermost bins, which hold them, and their ends, or the clip.
    """
    edges, unit = np.asarray(attribute.edges, dtype=np.float64), float(grain(attribute) or 0)
    pieces = [_pieces(shape, place) for place in range(rows.size)]
    means = np.array([float(masses @ (at[:-1] + at[1:])) / 2 for at, masses in pieces])[shape.bins]
    lows, highs = shape.ends
    widths = np.maximum(highs - lows - unit, 0.0)
    errors = _UNKNOWN[unseen is not None] * widths
    if unseen is None:
        # Of a tail the bin beside it tells nothing: its mean may lie anywhere.
        tails = [end for end, beside in ((0, 1), (-1, -2)) if widths.size > 1 and widths[end] >= 2 * widths[beside]]
        errors[tails] = widths[tails] / np.sqrt(12)
    if unseen is not None:
        end = highs.max() if attribute.clip is None else float(attribute.clip)
        outer = np.maximum((end - means) * (highs == highs.max()), (means - lows.min()) * (lows == lows.min()))
        errors = np.hypot(errors, np.minimum(unseen / np.maximum(rows, 1e-300), 1.0) * outer)
    if moments is not None:
        widths, held = np.diff(edges), np.maximum(rows, 1e-9)
        noise, seen = widths * moments[1] / held, edges[:-1] + widths * moments[0] / held + unit / 2
        own = shape.bins == np.arange(rows.size)
        gain = np.where(own, errors**2 / np.maximum(errors**2 + noise**2, 1e-300), 0.0)
        means = np.clip(means + gain * (seen - means), edges[:-1][shape.bins], edges[1:][shape.bins])
        errors = errors * np.sqrt(1 - gain)
        pieces = [_tilted(*each, mean) if move else each for each, mean, move in zip(pieces, means, gain, strict=True)]
        shape = _joined(
            [at for at, _ in pieces],
            [np.concatenate([[0.0], np.cumsum(masses[:-1]), [1.0]]) for _, masses in pieces],
            np.flatnonzero(~own).tolist(),
            shape.rounding,
        )
    return replace(shape, means=means, errors=errors)


def _pieces(shape: Shape, place: int) -> tuple[Doubles, Doubles]:
    """Where pieces of constant density of a bin begin and end, and the share of the bin that each holds."""
    inside = (shape.heights >= place) & (shape.heights <= place + 1)
    at, masses = shape.places[inside], np.diff(shape.heights[inside])
    return at, masses / max(float(masses.sum()), 1e-300)


def _tilted(at: Doubles, masses: Doubles, mean: float) -> tuple[Doubles, Doubles]:
    """The same pieces, divided where they are few, with masses times exp(t x) of their middles x so that this is their
    mean; the nearest that such pieces have, where they do not reach it.
    """
    finer, low, high = np.union1d(at, _spread(at[0], at[-1], _FINE)), -_STEEP, _STEEP
    masses = np.diff(np.interp(finer, at, np.concatenate([[0.0], np.cumsum(masses)])))
    scaled = ((finer[:-1] + finer[1:]) / 2 - at[0]) / (at[-1] - at[0])

    def tilted(t: float) -> Doubles:
        weights = masses * np.exp(t * scaled - max(t, 0.0))
        return np.asarray(weights / weights.sum())

    while high - low > 1e-9:
        middle = (low + high) / 2
        below = float(tilted(middle) @ scaled) * (at[-1] - at[0]) < mean - at[0]
        low, high = (middle, high) if below else (low, middle)
    return finer, tilted(low)


def _standard_errors(measured: Measured, n_rows: int) -> Doubles:
    """The standard error of a level's share by all tables that hold it, shape (m,)."""
    cells = measured.schema.cells
    # All but nothing, where no one-way table was measured.
    one_way, precision = np.full(cells.n_attributes, 1e-300), np.zeros(cells.n_pairs)
    for block in measured.counted:
        query = block.query
        if isinstance(query, Parities):
            one_way += block.scales[0] ** -2.0
        elif isinstance(query, Tables) and is_of_schema(block) and query.sets is None:
            if query.order == 1:
                one_way += block.scales**-2.0
            elif query.order == 2:
                precision += block.scales**-2.0
    return margin_sd(cells, one_way**-0.5, precision) / n_rows


def interpolated(attribute: Attribute, margins: Doubles) -> Shape:
    """The shape of bins whose inside is not known: PCHIP of the distribution function at their edges."""
    edges = np.asarray(attribute.edges, dtype=np.float64)
    inner = _inner(edges, margins[attribute.bin_codes])
    return _joined([_spread(low, high) for low, high in pairwise(edges.tolist())], list(inner))


def _seen_bins(z: Doubles, edges: Doubles) -> Ints:
    """The bins to draw from: for those that lie further outside than all that was seen is wide, the nearest seen one.

    What they hold is noise, and means suffer most from it; nearer ones have rows too few to be seen.
    """
    seen, bins = np.flatnonzero(z >= _SEEN), np.arange(z.size)
    if not seen.size:
        return bins
    low, high = edges[seen[0]], edges[seen[-1] + 1]
    near = (edges[:-1] >= 2 * low - high) & (edges[1:] <= 2 * high - low)
    return np.where(near, bins, np.clip(bins, seen[0], seen[-1]))


def _by_tree(attribute: Attribute, margins: Doubles, ladder: Ladder, density: Density, z: Doubles) -> Shape:
    """The shape of bins that a search found: the pieces inside of each, else PCHIP."""
    edges = np.asarray(attribute.edges, dtype=np.float64)
    cuts, masses = ladder.axis(density.edges).astype(np.float64), density.masses.copy()
    unit = float(ladder.grain)
    for number in attribute.apart:
        # No bin holds it: whatever its grain has belongs to a level of its own.
        masses[(cuts[:-1] >= number - unit / 2) & (cuts[1:] <= number + unit * 1.5)] = 0.0
    inner = _inner(edges, margins[attribute.bin_codes])
    upto = np.concatenate([[0.0], np.cumsum(masses)])
    tails = {float(low): float(high) for low, high in ladder.axis(np.array(density.tails, dtype=np.int64))}
    begun, seen = ladder.axis(np.array([density.first, density.last])).astype(np.float64).tolist()
    places, heights, empty = [], [], []
    for index, (low, high) in enumerate(pairwise(edges.tolist())):
        inside = cuts[(cuts > low) & (cuts < high)]
        own, reached = _spread(low, high), inner[index]
        if max(low, begun) < min(high, seen) and (low < begun or seen < high):
            # Where no piece says how numbers lie, as where all are points, none is drawn beyond what was seen.
            own, reached = np.array([max(low, begun), min(high, seen)]), np.array([0.0, 1.0])
        if low in tails:
            own, reached = np.array([low, min(tails[low], high)]), np.array([0.0, 1.0])
            # What a false tail does to a mean grows with its distance: the chance of one must fall by as much.
            far = max(abs(tails[low]) / max(abs(seen), 1e-300), 1.0)
            if z[index] < np.sqrt(2 * np.log(_FAR * far)):
                empty.append(index)
        elif inside.size:
            at = np.concatenate([[low], inside, [high]])
            rising = np.interp(at, cuts, upto)
            if rising[-1] > rising[0]:
                own, reached = at, (rising - rising[0]) / (rising[-1] - rising[0])
        places.append(own)
        heights.append(reached)
    return _joined(places, heights, empty)


def _joined(
    places: list[Doubles], heights: list[Doubles], empty: Sequence[int] = (), rounding: Rounding | None = None
) -> Shape:
    """One shape of all bins. Those that are empty are drawn like the last bin before them that is not."""
    bins = np.arange(len(places))
    for index in empty:
        bins[index] = bins[max(index - 1, 0)]
    reached = np.concatenate([number + each for number, each in enumerate(heights)])
    return Shape(bins=bins, places=np.concatenate(places), heights=reached, rounding=rounding)


def _spread(low: float, high: float, lines: int = _LINES) -> Doubles:
    share = np.linspace(0.0, 1.0, lines + 1)
    # Not low + (high - low) * share: the difference may overflow.
    return low * (1 - share) + high * share


def _inner(edges: Doubles, masses: Doubles) -> Doubles:
    """How much of each bin lies below places that divide it evenly, shape (bins, lines + 1), by PCHIP."""
    masses = np.maximum(masses, 0.0)
    even = np.linspace(0.0, 1.0, _LINES + 1)
    if masses.size < 2:
        return np.tile(even, (masses.size, 1))
    widths = np.diff(edges)
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = masses / widths
        before, after = slopes[:-1], slopes[1:]
        # The weighted harmonic mean: 0 where one side is empty, so that the curve never falls.
        weight = (widths[:-1] + 2 * widths[1:]) / (3 * (widths[:-1] + widths[1:]))
        among = before * after / np.maximum(weight * after + (1 - weight) * before, 1e-300)
        ends = [
            float(np.clip(((2 * w[0] + w[1]) * s[0] - w[0] * s[1]) / (w[0] + w[1]), 0.0, 3 * s[0]))
            for w, s in ((widths[:2], slopes[:2]), (widths[::-1][:2], slopes[::-1][:2]))
        ]
        tangents = np.concatenate([ends[:1], among, ends[1:]])
        low, high = (np.where(slopes > 0, each / slopes, 0.0)[:, None] for each in (tangents[:-1], tangents[1:]))
    # A cubic from 0 to 1 with these tangents, in parts of its bin.
    t = even[None, :]
    curve = t**2 * (3 - 2 * t) + low * t * (1 - t) ** 2 - high * t**2 * (1 - t)
    curve = np.where(slopes[:, None] > 0, curve, t)
    return np.asarray(np.maximum.accumulate(np.clip(np.nan_to_num(curve, nan=0.0), 0.0, 1.0), axis=1))


def _rounding(attribute: Attribute, ladder: Ladder, noisy: Ints, scale: float, density: Density) -> Rounding:
    """Chances of steps by the number of digits, from the noisy table of decade by step without the rows of heaps."""
    steps, counts = np.array(ladder.steps, dtype=np.int64), noisy.astype(np.float64)
    heaps = density.edges[density.heaps]
    np.subtract.at(counts, ladder.rounding_cells(heaps), density.masses[density.heaps])
    counts = counts.reshape(-1, steps.size)
    chances, known = np.zeros_like(counts), []
    for digits, row in enumerate(counts):
        # A number of so many digits is no multiple of a step that has more.
        possible = int(np.count_nonzero(steps < 10.0**digits)) if len(counts) > 1 else steps.size
        total = float(row[:possible].sum())
        if possible and total >= _DECADE * scale * np.sqrt(possible):
            chances[digits, :possible] = _chances(project(row[:possible], total), steps[:possible])
            known.append(digits)
    for digits in range(len(counts)):
        if digits not in known:
            nearest = min(known, key=lambda each: abs(each - digits), default=None)
            chances[digits] = np.eye(1, steps.size)[0] if nearest is None else chances[nearest]
    kept = heaps[~np.isin(ladder.axis(heaps), attribute.apart)]
    return Rounding(grain=ladder.grain, steps=steps, upto=np.cumsum(chances, axis=1)[:, :-1], kept=kept)


def _chances(counts: Doubles, steps: Ints) -> Doubles:
    """How often to round to each step, so that multiples of each come out as often as they were counted.

    A number rounded to a step is, by chance, a multiple of a larger one too: that much is taken off.
    """
    left, chances = np.maximum(counts, 0.0), np.zeros(steps.size)
    for index in range(steps.size):
        finer = steps[index]
        alone = 1.0 if index == steps.size - 1 else 1 - finer / steps[index + 1]
        chances[index] = max(left[index], 0.0) / alone
        for coarser in range(index + 1, steps.size):
            beyond = finer / steps[coarser + 1] if coarser + 1 < steps.size else 0.0
            left[coarser] -= chances[index] * (finer / steps[coarser] - beyond)
    whole = chances.sum()
    return chances / whole if whole > 0 else np.asarray(np.eye(1, steps.size)[0])
