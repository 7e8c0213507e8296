"""Two attributes at a time: how they depend on each other, how well rows match, and which tables are mostly noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report import svg
from sklar.answer.report.findings import Findings, root_mean_square
from sklar.answer.report.render import Rows, short
from sklar.public.shown import shown_name

if TYPE_CHECKING:
    from sklar.files.model import Model

# These limits keep the page readable however wide the table is.
MAX_MAP = 40
MAX_LISTED = 20
_NO_DEPENDENCE = 0.005
_RATIOS = (0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
_NEAR = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """What the report shows about pairs of attributes: dependence, the match of the synthetic rows, and noise."""

    number: int
    error: float
    heat_map: Markup
    map_width: int
    groups: int
    strongest: Rows
    least_dependence: float
    independent: int
    histogram: Markup
    near: float
    near_ratio: float
    worst: Rows
    noisy: int
    noisiest: Rows


def compare_pairs(model: Model, found: Findings) -> Pairs:
    """What is shown about pairs of attributes."""
    n, error = model.n_rows, root_mean_square(found.pair_sd)
    names = tuple(shown_name(each) for each in model.measured_schema.attributes)
    expected = n / found.cells
    relative = found.pair_sd / expected

    def largest(figures: NDArray[np.float64], chosen: NDArray[np.bool_]) -> list[int]:
        order = np.argsort(-figures, kind="stable")[:MAX_LISTED]
        return [int(index) for index in order if chosen[index]]

    def name(index: int) -> str:
        return short(f"{names[found.first[index]]} \N{MULTIPLICATION SIGN} {names[found.second[index]]}", 90)

    strongest = largest(found.dependence, found.dependence > 0)
    heat_map, width = _heat_map(found, names, name(strongest[0]) if strongest else None)
    return Pairs(
        number=found.first.size,
        error=error,
        heat_map=heat_map,
        map_width=min(width, 700),
        groups=MAX_MAP if len(names) > MAX_MAP else 0,
        strongest=tuple(
            (name(index), f"{100 * found.dependence[index]:.1f}", f"± {found.pair_sd[index]:,.0f}")
            for index in strongest
        ),
        least_dependence=_NO_DEPENDENCE,
        independent=int(np.count_nonzero(found.dependence < _NO_DEPENDENCE)),
        histogram=_histogram(found.ratios),
        near_ratio=_NEAR,
        near=float(np.mean(found.ratios < _NEAR)),
        worst=tuple(
            (name(index), f"{found.ratios[index]:.2f}") for index in largest(found.ratios, found.ratios >= _NEAR)
        ),
        noisy=int(np.count_nonzero(relative > 1)),
        noisiest=tuple(
            (name(index), f"{found.cells[index]:,}", f"{expected[index]:,.1f}", f"± {found.pair_sd[index]:,.0f}")
            for index in largest(relative, relative > 1)
        ),
    )


def _heat_map(found: Findings, names: tuple[str, ...], strongest: str | None) -> tuple[Markup, int]:
    """The dependence of all pairs; neighbors are drawn together where there are many attributes."""
    m = len(names)
    square = np.zeros((m, m))
    square[found.first, found.second] = found.dependence
    square += square.T
    labels = list(names)
    if m > MAX_MAP:
        groups = np.array_split(np.arange(m), MAX_MAP)
        starts = np.array([group[0] for group in groups])
        square = np.maximum.reduceat(np.maximum.reduceat(square, starts, axis=0), starts, axis=1)
        labels = [f"{group[0] + 1} to {group[-1] + 1}" for group in groups]
    told = f"The strongest pair is {strongest}." if strongest else "No pair shows any dependence."
    return svg.heat_map(
        square,
        labels,
        title="Dependence between attributes, corrected for noise",
        description=f"Darker cells show stronger dependence. {told} The table below lists the strongest.",
    )


def _histogram(ratios: NDArray[np.float64]) -> Markup:
    edges = (0.0, *_RATIOS, math.inf)
    between = [f"{low:g}\N{EN DASH}{high:g}" for low, high in pairwise(_RATIOS)]
    return svg.histogram(
        [int(np.count_nonzero((ratios >= low) & (ratios < high))) for low, high in pairwise(edges)],
        [f"< {_RATIOS[0]:g}", *between, f"≥ {_RATIOS[-1]:g}"],
        title="How far the synthetic rows are from the noisy tables, by pair",
        description=f"{100 * float(np.mean(ratios < _NEAR)):.0f}% of the pairs have a ratio below {_NEAR:g}.",
    )
