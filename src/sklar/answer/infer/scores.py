"""Numbers that levels stand for: a number's own, a bin's mean, a truth value. Inference is about these.

A table is coded before it is measured, so the mean of a number is the mean of its levels' scores. A bin's score is the
mean of the shape that numbers have inside it (`fitting.density`), its midpoint where that is asked for, or what the
caller declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from sklar.answer.infer.effects import Floats
from sklar.answer.predicate import QueryError
from sklar.draw.shapes import Shape
from sklar.public.schema import BINNED, Attribute
from sklar.public.types import grain

# What the caller says of an attribute's scores: midpoints of bins, or a number for each level by its name.
Declared: TypeAlias = "Literal['midpoint'] | Mapping[str, float]"

# Axes that are shown in another unit: what one of it is on the axis, and its name.
_UNITS: dict[str, tuple[float, str]] = {
    "date": (1.0, "days since 1970-01-01"),
    "datetime": (1e6, "seconds since 1970-01-01"),
    "time": (1e6, "seconds since midnight"),
    "duration": (1e6, "seconds"),
    "yearmonth": (1.0, "months since the year 0"),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """The score of each level, shape (levels,), NaN where it has none (missing, special, other); and how it was set."""

    values: Floats
    by: str

    @property
    def known(self) -> Floats:
        """1 for levels that have a score, else 0."""
        return np.where(np.isnan(self.values), 0.0, 1.0)

    @property
    def filled(self) -> Floats:
        """The scores, 0 where there is none."""
        return np.nan_to_num(self.values, nan=0.0)


def is_number(attribute: Attribute, declared: Mapping[str, Declared]) -> bool:
    """Whether an attribute enters a formula as one number: an axis, a truth value, or declared scores."""
    return attribute.kind in BINNED or attribute.kind == "boolean" or attribute.name in declared


def score(shapes: Callable[[], Mapping[str, Shape]], attribute: Attribute, declared: Mapping[str, Declared]) -> Scores:
    """The scores of an attribute's levels; `shapes` gives those inside bins, where they are needed."""
    said = declared.get(attribute.name)
    values = np.full(attribute.n_levels, np.nan)
    if isinstance(said, Mapping):
        unknown = sorted(set(said) - set(attribute.levels))
        if unknown:
            raise QueryError(
                f"attribute '{attribute.name}' has no level '{unknown[0]}', got a score for it. "
                f"Its levels are {', '.join(attribute.levels[:12])}."
            )
        for level, number in said.items():
            values[attribute.levels.index(level)] = number
        return Scores(values=values, by="declared scores")
    if said not in (None, "midpoint"):
        raise QueryError(
            f"scores of '{attribute.name}' must be 'midpoint' or a number for each level, got {said!r}. "
            "Example: scores={'education': {'Bachelors': 13}}."
        )
    if attribute.kind == "boolean":
        values[:2] = 0.0, 1.0
        return Scores(values=values, by="0 and 1")
    if attribute.kind == "categorical":
        numbers = [value for value in attribute.values if isinstance(value, int)]
        if len(numbers) < len(attribute.values) or not numbers:
            raise QueryError(
                f"attribute '{attribute.name}' holds categories, which have no mean. Ask for a share, such as "
                f"share({attribute.name} = '{attribute.levels[0]}'), or declare scores."
            )
        values[: len(numbers)] = numbers
        return Scores(values=values, by="the numbers themselves")
    unit, named = _UNITS.get(attribute.kind, (1.0, ""))
    shape = None if said == "midpoint" else shapes().get(attribute.name)
    values[attribute.bin_codes] = _bin_means(attribute, shape) / unit
    values[attribute.point_codes] = np.array(attribute.points, dtype=np.float64) / unit
    by = "midpoints of bins" if shape is None else "means of the fitted shape inside bins"
    edges = np.asarray(attribute.edges, dtype=np.float64)
    step = grain(attribute)
    if step is not None and np.all(np.diff(edges) <= float(step)):
        by = "the numbers themselves"
    return Scores(values=values, by=by + (f", in {named}" if named else ""))


def _bin_means(attribute: Attribute, shape: Shape | None) -> Floats:
    """The mean of the numbers inside each bin, on the axis; by a shape where there is one, else evenly spread."""
    edges = np.asarray(attribute.edges, dtype=np.float64)
    low, high = edges[:-1], edges[1:]
    means = low + (high - low) / 2
    if shape is not None:
        for bin_ in range(means.size):
            own = int(shape.bins[bin_])
            # The distribution function of a bin goes from its number to the next one.
            inside = (shape.heights >= own) & (shape.heights <= own + 1)
            places, heights = shape.places[inside], shape.heights[inside]
            mass = np.diff(heights)
            if mass.sum() > 0:
                means[bin_] = float(np.average((places[:-1] + places[1:]) / 2, weights=mass))
    step = grain(attribute)
    if step is not None:
        # Numbers are multiples of a grain: those of [20, 25) are 20 to 24.
        means = np.maximum(means - float(step) / 2, low)
    return means
