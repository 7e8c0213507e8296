"""How numbers lie inside their bins: shapes from noisy tables, at no cost. Post-processing.

Where the search for a domain divided a bin, numbers follow the pieces of its tree (`trees`). Elsewhere, and where edges
are public, they follow a monotone interpolation of the noisy distribution function at the edges (PCHIP: Fritsch and
Butland 1984). A declared grain is kept by the decoder; where none is declared, the search's table of decade by step
says to what numbers are rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Measured
from sklar.budget.ladder import Ladder, ladder_of
from sklar.budget.plan import margin_sd
from sklar.budget.search import asked_of
from sklar.draw.shapes import Rounding, Shape
from sklar.fitting.simplex import project
from sklar.fitting.trees import Density, estimate_density
from sklar.public.schema import BINNED, Attribute

Floats = NDArray[np.float64]

# Straight lines that stand for one curve of the interpolation.
_LINES = 8
# How much a level beyond the support that noise alone filled is feared, were it next to the support.
_FAR = 10.0
# Fewer rows of a decade, in standard errors, say nothing about its rounding.
_DECADE = 4.0
# The largest numbers that floats hold one by one.
_EXACT = 2.0**53


def fit_shapes(measured: Measured, margins: Floats) -> dict[str, Shape]:
    """The shapes of all attributes on an axis, by name. `margins` are probabilities of levels, shape (d,)."""
    schema = measured.schema
    answers: dict[tuple[str, str], tuple[NDArray[np.int64], ...]] = {}
    ladders: dict[str, tuple[Ladder, float]] = {}
    scales: dict[str, float] = {}
    for finding, answer in zip(measured.certificate.domains, measured.answers, strict=False):
        if isinstance(answer, Mapping) or finding.bounds is None:
            continue
        answers[finding.attribute, finding.of] = answer
        ladder = ladder_of(asked_of(finding, schema.attribute(finding.attribute)))
        if finding.of == "rounding":
            scales[finding.attribute] = finding.scale
        else:
            ladders[finding.attribute] = (ladder, finding.scale)
    errors = _standard_errors(measured)
    shapes = {}
    for index, attribute in enumerate(schema.attributes):
        if attribute.kind not in BINNED or max(map(abs, attribute.edges)) >= _EXACT:
            continue
        own = margins[schema.cells.levels(index)]
        if attribute.name not in ladders:
            shapes[attribute.name] = interpolated(attribute, own)
            continue
        ladder, scale = ladders[attribute.name]
        density = estimate_density(ladder, answers[attribute.name, "domain"], scale)
        shape = _by_tree(attribute, own, ladder, density, own[attribute.bin_codes] / errors[index])
        rounding = answers.get((attribute.name, "rounding"))
        if rounding is not None:
            shape = Shape(
                bins=shape.bins,
                heights=shape.heights,
                places=shape.places,
                rounding=_rounding(attribute, ladder, rounding[0], scales[attribute.name], density),
            )
        shapes[attribute.name] = shape
    return shapes


def _standard_errors(measured: Measured) -> Floats:
    """The standard error of a level's share by all tables that hold it, shape (m,)."""
    cells = measured.schema.cells
    one_way = np.full(cells.n_attributes, np.inf)
    precision = np.zeros(cells.n_pairs)
    rows = float(measured.n_rows or 0)
    for tables in measured.stages:
        if tables.plan.one_way.size:
            one_way = (one_way**-2.0 + tables.plan.one_way**-2.0) ** -0.5
        if tables.plan.pairs.size and tables.plan.parities is None:
            precision = precision + tables.plan.pairs**-2.0
        rows = rows or float(max(tables.total or 0, 1))
    return margin_sd(cells, one_way, precision) / max(rows, 1.0)


def interpolated(attribute: Attribute, margins: Floats) -> Shape:
    """The shape of bins whose inside is not known: PCHIP of the distribution function at their edges."""
    edges = np.asarray(attribute.edges, dtype=np.float64)
    inner = _inner(edges, margins[attribute.bin_codes])
    return _joined([_spread(edges[i], edges[i + 1]) for i in range(edges.size - 1)], list(inner))


def _by_tree(attribute: Attribute, margins: Floats, ladder: Ladder, density: Density, z: Floats) -> Shape:
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
    seen = float(ladder.axis(np.array([density.last]))[0])
    places, heights, empty = [], [], []
    for index in range(edges.size - 1):
        low, high = float(edges[index]), float(edges[index + 1])
        inside = cuts[(cuts > low) & (cuts < high)]
        own, reached = _spread(low, high), inner[index]
        if low in tails:
            own, reached = np.array([low, min(tails[low], high)]), np.array([0.0, 1.0])
            if z[index] < _needed(tails[low], seen):
                empty.append(index)
        elif inside.size:
            at = np.concatenate([[low], inside, [high]])
            rising = np.interp(at, cuts, upto)
            if rising[-1] > rising[0]:
                own, reached = at, (rising - rising[0]) / (rising[-1] - rising[0])
        places.append(own)
        heights.append(reached)
    return _joined(places, heights, empty)


def _needed(end: float, seen: float) -> float:
    """The standard errors by which a level beyond the support must have rows.

    What a false one does to a mean grows with its distance. The chance of one falls by as much.
    """
    return float(np.sqrt(2 * np.log(_FAR * max(abs(end) / max(abs(seen), 1e-300), 1.0))))


def _joined(places: list[Floats], heights: list[Floats], empty: Sequence[int] = ()) -> Shape:
    """One shape of all bins. Those that are empty are drawn like the last bin before them that is not."""
    bins = np.arange(len(places))
    for index in empty:
        bins[index] = bins[max(index - 1, 0)]
    return Shape(
        bins=bins,
        places=np.concatenate(places),
        heights=np.concatenate([number + each for number, each in enumerate(heights)]),
    )


def _spread(low: float, high: float) -> Floats:
    share = np.linspace(0.0, 1.0, _LINES + 1)
    # Not low + (high - low) * share: the difference may overflow.
    return low * (1 - share) + high * share


def _inner(edges: Floats, masses: Floats) -> Floats:
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
        ends = [_end(widths[:2], slopes[:2]), _end(widths[::-1][:2], slopes[::-1][:2])]
        tangents = np.concatenate([ends[:1], among, ends[1:]])
        low, high = (np.where(slopes > 0, each / slopes, 0.0)[:, None] for each in (tangents[:-1], tangents[1:]))
    # A cubic from 0 to 1 with these tangents, in parts of its bin.
    t = even[None, :]
    curve = t**2 * (3 - 2 * t) + low * t * (1 - t) ** 2 - high * t**2 * (1 - t)
    curve = np.where(slopes[:, None] > 0, curve, t)
    return np.asarray(np.maximum.accumulate(np.clip(np.nan_to_num(curve, nan=0.0), 0.0, 1.0), axis=1))


def _end(widths: Floats, slopes: Floats) -> float:
    """The tangent at an end: by three points, kept from turning the curve."""
    tangent = ((2 * widths[0] + widths[1]) * slopes[0] - widths[0] * slopes[1]) / (widths[0] + widths[1])
    return float(np.clip(tangent, 0.0, 3 * slopes[0]))


def _rounding(
    attribute: Attribute, ladder: Ladder, noisy: NDArray[np.int64], scale: float, density: Density
) -> Rounding:
    """Chances of steps by the number of digits, from the noisy table of decade by step without the rows of heaps."""
    steps = np.array(ladder.steps, dtype=np.int64)
    counts = noisy.astype(np.float64)
    heaps = density.edges[density.heaps]
    np.subtract.at(counts, ladder.rounding_cells(heaps), density.masses[density.heaps])
    counts = counts.reshape(-1, steps.size)
    chances = np.zeros_like(counts)
    known = []
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


def _chances(counts: Floats, steps: NDArray[np.int64]) -> Floats:
    """How often to round to each step, so that multiples of each come out as often as they were counted.

    A number rounded to a step is, by chance, a multiple of a larger one too: that much is taken off the larger ones.
    """
    left = np.maximum(counts, 0.0)
    chances = np.zeros(steps.size)
    for index in range(steps.size):
        finer = steps[index]
        alone = 1.0 if index == steps.size - 1 else 1 - finer / steps[index + 1]
        chances[index] = max(left[index], 0.0) / alone
        for coarser in range(index + 1, steps.size):
            beyond = finer / steps[coarser + 1] if coarser + 1 < steps.size else 0.0
            left[coarser] -= chances[index] * (finer / steps[coarser] - beyond)
    whole = chances.sum()
    return chances / whole if whole > 0 else np.asarray(np.eye(1, steps.size)[0])
