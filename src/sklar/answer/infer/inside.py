"""What levels stand for: numbers, and where inside their bins these lie, as far as anything says.

A bin is taken in `RUNS` slices by its shape, ascending, with borders where a question cuts it. A statistic is evaluated
once for each run, in which every number of a record is the mean of one slice of its bin. Slices of several attributes
go together as an orthogonal array has it (strength two, in levels of four; Tang 1993), as if numbers inside bins were
independent; `Inquiry` tilts their weights so that they continue how bins depend on other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from sklar.answer.effects import Codes, Floats
from sklar.answer.predicate import QueryError
from sklar.draw.decode import Shape
from sklar.machine.wording import said
from sklar.public.attribute import Attribute
from sklar.public.outputs import grain

# What the caller says of an attribute's scores: midpoints of bins, or a number for each level by its name.
Declared: TypeAlias = "Literal['midpoint'] | Mapping[str, float]"
Shapes: TypeAlias = Callable[[], Mapping[str, Shape]]

RUNS = 16
# Places inside a slice whose mean stands for it.
_FINE = 8
# Axes that are shown in another unit: what one of it is on the axis, and its name.
_UNITS: dict[str, tuple[float, str]] = {
    "date": (1.0, "days since 1970-01-01"),
    "datetime": (1e6, "seconds since 1970-01-01"),
    "time": (1e6, "seconds since midnight"),
    "duration": (1e6, "seconds"),
    "yearmonth": (1.0, "months since the year 0"),
}


def _design() -> Codes:
    """Which slice each of five attributes has in each run, shape (5, RUNS)."""
    first, second = np.divmod(np.arange(RUNS), 4)
    # Products of the field of four elements.
    twice, thrice = np.array([0, 2, 3, 1])[second], np.array([0, 3, 1, 2])[second]
    array = np.stack([first, second, first ^ second, first ^ twice, first ^ thrice])
    # An order in which the second digit is not correlated with what it is of.
    return np.asarray(4 * array + np.array([1, 3, 0, 2])[np.roll(array, -1, axis=0)])


DESIGN = _design()


class Inside(NamedTuple):
    """What is known of numbers inside levels: means, their standard errors, and the widths of what is drawn there,
    shape (levels,); of slices: means, shares, parts (levels of a finer schema) and ends of these, shape (levels, RUNS).
    """

    means: Floats
    errors: Floats
    widths: Floats
    points: Floats
    masses: Floats
    parts: Codes
    lows: Floats
    highs: Floats

    @property
    def hidden(self) -> Floats:
        """Variances inside levels."""
        return np.asarray(np.nan_to_num(np.sum(self.masses * (self.points - self.means[:, None]) ** 2, axis=1)))

    def shares(self, level: int, held: Floats, reach: float) -> tuple[float, float]:
        """The least and the largest share of a level that slices which are `held` can have, whatever its numbers are,
        if their mean is this one within `reach` standard errors: at two of the ends, on either side (Markov).
        """
        ends = np.concatenate([self.lows[level], self.highs[level]])
        error = reach * self.errors[level]
        low, high = np.clip(self.means[level] + np.array([-error, error]), ends.min(), ends.max())

        def most(mean: float, of: Floats) -> float:
            below, above = ends <= mean, ends >= mean
            widths = ends[above] - ends[below][:, None]
            part = np.where(widths > 0, (mean - ends[below][:, None]) / np.where(widths > 0, widths, 1.0), 0.0)
            return float(np.max((1 - part) * of[below][:, None] + part * of[above]))

        means = [low, high, *ends[(low < ends) & (ends < high)]]
        largest = [max(most(mean, np.tile(each, 2)) for mean in means) for each in (1 - held, held)]
        return 1 - largest[0], largest[1]


def unit_of(attribute: Attribute) -> tuple[float, str]:
    """What one of the unit that a number is shown in is on its axis, and the unit's name."""
    return _UNITS.get(attribute.kind, (1.0, ""))


class Scores(NamedTuple):
    """The number that each level stands for, shape (levels,), NaN where it has none, how these were set, and what is
    known inside bins; None where levels are the numbers.
    """

    values: Floats
    by: str
    inside: Inside | None = None


def score(attribute: Attribute, declared: Declared | None, inside: Callable[[], Inside]) -> Scores:
    """A number's own score, a truth value, what the caller declares, or the mean or midpoint inside a bin."""
    name, values = attribute.name, np.full(attribute.n_levels, np.nan)
    if isinstance(declared, Mapping):
        if unknown := sorted(set(declared) - set(attribute.levels)):
            listed = ", ".join(attribute.levels[:12])
            raise QueryError(said("answer.no_scored_level", name=name, level=unknown[0], listed=listed))
        values[[attribute.levels.index(level) for level in declared]] = list(declared.values())
        return Scores(values, "declared scores")
    if declared not in (None, "midpoint"):
        raise QueryError(said("answer.scores", name=name, got=declared))
    if not attribute.binned:
        numbers = [0, 1] if attribute.boolean else [value for value in attribute.values if isinstance(value, int)]
        if len(numbers) < len(attribute.values) or not numbers:
            raise QueryError(said("answer.no_number", name=name, level=attribute.levels[0]))
        values[: len(numbers)] = numbers
        return Scores(values, "0 and 1" if attribute.boolean else "the numbers themselves")
    (unit, named), step, edges = unit_of(attribute), grain(attribute), np.asarray(attribute.edges, dtype=np.float64)
    values[attribute.point_codes] = np.array(attribute.points, dtype=np.float64) / unit
    middles = (edges[:-1] + np.diff(edges) / 2 - float(step or 0) / 2) / unit
    own, by = None, "midpoints of bins"
    if step is not None and np.all(np.diff(edges) <= float(step)):
        by = "the numbers themselves"
    elif not declared:
        own, by = inside(), "means of the fitted shape inside bins"
    values[attribute.bin_codes] = middles if own is None else own.means[attribute.bin_codes]
    return Scores(values, by + (f", in {named}" if named else ""), own)


def inside_of(attribute: Attribute, finer: Attribute, parts: Codes, shape: Shape | None) -> Inside:
    """What its shape says inside an attribute's bins, whose `parts` are levels of a `finer` one."""
    unit, step = unit_of(attribute)[0], float(grain(attribute) or 0)
    edges, fine = (np.asarray(each.edges, dtype=np.float64) for each in (attribute, finer))
    if shape is None:
        shape = Shape(bins=np.arange(edges.size - 1), heights=np.arange(edges.size * 1.0), places=edges)
    limits = shape.ends[0].min(), shape.ends[1].max()
    means, points, lows, highs = (np.full((attribute.n_levels, RUNS), np.nan) for _ in range(4))
    errors, widths, masses = np.zeros_like(means), np.zeros_like(means), np.full_like(means, 1 / RUNS)
    whole = [np.flatnonzero(parts == level)[0] for level in range(attribute.n_levels)]
    within = np.repeat(np.array(whole)[:, None], RUNS, axis=1)
    for place, (low, high) in enumerate(pairwise(edges)):
        level, cuts = attribute.bin_codes[place], fine[(fine > low) & (fine < high)]
        if cuts.size >= RUNS:
            raise QueryError(said("answer.many_cuts", most=RUNS - 1, name=attribute.name, got=cuts.size))
        # Where noise alone filled a bin its numbers are drawn from another one, unless a question divides it.
        drawn = place if cuts.size else shape.bins[place]
        first = np.searchsorted(shape.heights, drawn, side="right") - 1
        inner = slice(first, np.searchsorted(shape.heights, drawn + 1) + 1)
        places, heights = shape.places[inner], shape.heights[inner] - drawn
        borders, at, part = np.linspace(0, 1, RUNS + 1), 0, np.zeros(RUNS, dtype=np.int64)
        for number, cut in enumerate(np.interp(cuts, places, heights)):
            at = int(min(max(round(cut * RUNS), at + 1), RUNS - cuts.size + number))
            borders[at] = cut
            part[at:] += 1
        masses[level] = np.diff(borders)
        fineness = borders[:-1, None] + masses[level][:, None] * (np.arange(_FINE) + 0.5) / _FINE
        points[level] = np.maximum(np.interp(fineness, heights, places).mean(axis=1) - step / 2, places[0])
        means[level] = masses[level] @ points[level]
        if shape.means is not None and shape.errors is not None:
            # What was measured is noisy: a mean lies where numbers do, and is off by no more than half of that range.
            least, most = shape.ends[0][place], max(shape.ends[1][place] - step, shape.ends[0][place])
            means[level] = min(max(shape.means[place] - step / 2, least), most)
            errors[level] = min(shape.errors[place], (most - least) / 2)
            points[level] += means[level] - masses[level] @ points[level]
        widths[level] = max(places[-1] - places[0] - step, 0.0)
        # Numbers are limited to where they are drawn, but in a bin that a question divides.
        reach = (low, high) if cuts.size else np.clip(edges[drawn : drawn + 2], *limits)
        ends = np.array([reach[0], *cuts, reach[1]])
        lows[level], highs[level] = ends[part], np.maximum(ends[part + 1] - step, ends[part])
        within[level] = np.flatnonzero(parts == level)[part]
    own = {"means": means[:, 0], "errors": errors[:, 0], "widths": widths[:, 0]}
    own |= {"points": points, "lows": lows, "highs": highs}
    return Inside(**{name: each / unit for name, each in own.items()}, masses=masses, parts=within)
