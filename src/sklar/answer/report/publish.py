"""The publishable report: what was released, what it promises and how far to trust it. Made from a model alone.

This module decides what is shown; `templates/publishable.html.j2` has the words. Equal models give equal bytes: the
page shows no time and no host, and random numbers come from a fixed seed.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report import svg
from sklar.answer.report.findings import Findings, find
from sklar.answer.report.render import Rows, percent, render, short
from sklar.budget.certificate import Certificate, rounded_up
from sklar.fitting.margins import pool
from sklar.public.rules import rule_text
from sklar.public.schema import Attribute, Schema

if TYPE_CHECKING:
    from sklar.files.model import Model

# These limits keep the page readable, and below 5 MB, however wide the table is.
MAX_CHARTS = 48
MAX_BARS = 20
MANY_BARS = 12
MAX_MAP = 40
MAX_LISTED = 20
MAX_SCHEMA_ROWS = 200
_NO_DEPENDENCE = 0.005
_RATIOS = (0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
_NEAR = 1.25

_COPULA = "a Gaussian copula over the levels of all attributes"
_KINDS = {
    "mixture": "a mixture of many simple profiles, fitted to the noisy tables",
    "factor": "a low-rank Gaussian copula over whole attributes, fitted to the noisy tables",
    "independence": "independent attributes, because the noisy tables support no dependence",
}
_KNOWN_FROM = {"public": "public knowledge", "found": "noisy counts", "rows": "the records"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing of the levels of one attribute, without the `left_out` smallest."""

    name: str
    left_out: int
    drawing: Markup


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """All that the report shows. The custodian counted `measured` attributes; with only one, `pairs` is None."""

    schema: Schema
    certificate: Certificate
    file_name: str
    n_rows: int
    measured: int
    kind: str
    error: float
    chance: str
    factor: str
    surest: float
    measurements: Rows
    kinds: str
    attributes: Rows
    read_from_rows: tuple[str, ...]
    rules: tuple[str, ...]
    charts: tuple[Chart, ...]
    pairs: Pairs | None
    asked: str
    run: Rows


def typical_errors(model: Model) -> tuple[float, float | None]:
    """The standard errors of a count over one attribute and over two, as root mean squares; None without pairs."""
    listed = model.measured_schema.names[:MAX_CHARTS]
    one_way = _rms(np.array([model.estimate(name).standard_errors[0] for name in listed]))
    pairs = pool(model.measured.stages).pair_sd
    return one_way, _rms(pairs) if pairs.size else None


def publishable(model: Model, *, file_name: str = "MODEL.sklar") -> str:
    """The report as one HTML document."""
    return render("sklar.answer.report", "publishable.html.j2", view(model, file_name))


def view(model: Model, file_name: str) -> Release:
    """What the report shows."""
    schema, certificate, found = model.schema, model.certificate, find(model)
    kinds = Counter(each.kind for each in schema.attributes)
    odds = math.exp(min(certificate.epsilon, 700.0))
    listed = model.measured_schema.names[:MAX_CHARTS]
    return Release(
        schema=schema,
        certificate=certificate,
        file_name=short(file_name, 60),
        n_rows=model.n_rows,
        measured=model.measured_schema.n_attributes,
        kind=_KINDS.get(str(model.settings.get("kind")), _COPULA),
        error=_rms(np.array([model.estimate(name).standard_errors[0] for name in listed])),
        chance=_one_in(certificate.delta),
        factor=rounded_up(odds, 3) if odds < 1e6 else f"e^{rounded_up(certificate.epsilon, 3)}",
        surest=odds / (1 + odds),
        measurements=_measurements(certificate),
        kinds=", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items())),
        attributes=tuple(
            (short(each.name, 60), each.kind, f"{each.n_levels:,}", _domain(each), _KNOWN_FROM[each.known_from])
            for each in schema.attributes[:MAX_SCHEMA_ROWS]
        ),
        read_from_rows=tuple(short(name, 60) for name in certificate.read_from_rows[:MAX_LISTED]),
        rules=tuple(short(rule_text(rule, schema.attributes), 200) for rule in schema.rules[:MAX_LISTED]),
        charts=tuple(_chart(model, found, index) for index in _leading(found, model.measured_schema.n_attributes)),
        pairs=_pairs(model, found) if found.first.size else None,
        asked=" and ".join(_condition(each) for each in schema.attributes[:1] + schema.attributes[1:][-1:]),
        run=_run(certificate),
    )


def _rms(values: NDArray[np.float64]) -> float:
    return math.sqrt(float(np.mean(values**2)))


def _one_in(chance: float) -> str:
    if chance == 0:
        return "none"
    number = 1 / chance
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= unit:
            return f"1 in {number / unit:.3g} {name}"
    return f"1 in {number:,.0f}"


def _measurements(certificate: Certificate) -> Rows:
    """What the search for domains and each stage measured: the tables, their noise and their share of the cost."""
    power = 2 if certificate.mechanism == "gaussian" else 1
    measured = [("search", "domains of attributes", each.tables, each.scale) for each in certificate.domains]
    measured += [(str(each.stage), each.what, each.tables, each.scale) for each in certificate.measurements]
    whole = sum(tables * scale**-power for _, _, tables, scale in measured)
    rows = []
    for (stage, what), group in groupby(measured, key=itemgetter(0, 1)):
        _, _, tables, scales = zip(*group, strict=True)
        low, high = f"{min(scales):,.1f}", f"{max(scales):,.1f}"
        share = sum(number * scale**-power for number, scale in zip(tables, scales, strict=True)) / whole
        rows.append((stage, what, f"{sum(tables):,}", low if low == high else f"{low} to {high}", f"{share:.0%}"))
    return tuple(rows)


def _domain(attribute: Attribute) -> str:
    levels = attribute.levels
    listed = ", ".join(short(level, 24) for level in (levels if len(levels) <= 7 else (*levels[:4], "…", *levels[-2:])))
    return listed + (f" (missing: {attribute.missing or 'empty'})" if attribute.missing is not None else "")


def _leading(found: Findings, attributes: int) -> list[int]:
    """The attributes to draw, in the order of the schema: all, or those with the strongest dependences."""
    if attributes <= MAX_CHARTS:
        return list(range(attributes))
    # Fewer attributes than we want cannot form this many pairs.
    order = np.argsort(-found.dependence, kind="stable")[: MAX_CHARTS**2]
    ranked = dict.fromkeys(np.stack([found.first[order], found.second[order]], axis=1).ravel().tolist())
    return sorted(list(ranked)[:MAX_CHARTS])


def _chart(model: Model, found: Findings, index: int) -> Chart:
    attribute, start = model.measured_schema.attributes[index], int(model.measured_schema.offsets[index])
    n, estimate = model.n_rows, model.estimate(attribute.name)
    order = np.arange(attribute.n_levels)
    if order.size > MAX_BARS:
        order = np.sort(np.argsort(-estimate.counts, kind="stable")[:MANY_BARS])
    entries = [
        svg.Bar(
            label=attribute.levels[k],
            value=float(estimate.counts[k] / n),
            low=float(estimate.low[k] / n),
            high=float(estimate.high[k] / n),
            mark=float(found.levels[start + k]),
        )
        for k in order
    ]
    widest = max(entries, key=lambda entry: entry.value)
    drawing = svg.bars(
        entries,
        title=f"Shares of the levels of {short(attribute.name, 60)}",
        description=f"The largest is {short(widest.label, 40)} with {percent(widest.value)}, 95% interval "
        f"{percent(max(widest.low, 0.0))} to {percent(widest.high)}; synthetic rows have {percent(widest.mark)}.",
    )
    return Chart(name=short(attribute.name, 60), left_out=attribute.n_levels - order.size, drawing=drawing)


def _pairs(model: Model, found: Findings) -> Pairs:
    n, names, error = model.n_rows, model.measured_schema.names, _rms(found.pair_sd)
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


def _condition(attribute: Attribute) -> str:
    """A question about the first level of an attribute, as it stands in double quotes on a command line."""
    name, level = attribute.name, attribute.levels[0].replace("'", "''")
    plain = all(letter.isalnum() or letter in "_-." for letter in name)
    return f"{name} = '{level}'" if plain else f"\\\"{name}\\\" = '{level}'"


def _run(certificate: Certificate) -> Rows:
    claimed = certificate.claimed_by
    return (
        ("Schema, SHA-256", certificate.schema_sha256),
        *([("Measured by (not checked)", claimed)] if claimed else []),
        ("Mechanism", f"discrete {certificate.mechanism}" if certificate.versions else certificate.mechanism),
        ("Composition", certificate.composition),
        ("Neighbors", certificate.neighbors),
        ("Protected", f"any one {certificate.unit}"),
        ("Counted", certificate.counted),
        *((f"Version of {name}", number) for name, number in sorted(certificate.versions.items())),
    )
