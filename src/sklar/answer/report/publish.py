"""The publishable report, made from a model alone: this module decides what is shown, the template has the words.

Equal models give equal bytes: the page shows no time and no host, and random numbers come from a fixed seed.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklar.answer.effects import Floats
from sklar.answer.report import svg
from sklar.answer.report.render import Rows, percent, render, short
from sklar.budget.certificate import SCORES, Certificate, rounded_up
from sklar.budget.forecast import TWICE, drowned, grade
from sklar.budget.plan import target_words
from sklar.budget.risk import FALSE_ALARMS, PRIORS, risk_of
from sklar.budget.search import search_spend
from sklar.draw.decode import Shape
from sklar.draw.repair import sample_codes
from sklar.fitting.denoise import PairTables
from sklar.fitting.margins import margins, pool
from sklar.kernel.queries import PARTS
from sklar.kernel.theorems import Spend
from sklar.public.rules import rule_text
from sklar.public.schema import Attribute, Schema
from sklar.public.shown import shown_levels, shown_name, shown_table, with_unit

if TYPE_CHECKING:
    from sklar.files.model import Model

# These limits keep the page readable, and below 5 MB, however wide the table is.
MAX_CHARTS = 48
MAX_SCHEMA_ROWS = 200
MAX_MAP = 40
MAX_LISTED = 20
_MAX_SEARCHES = 200
MAX_BARS = 40
MANY_BARS = 20
_MAX_BINS = 200
_MAX_FIGURES = 60
_SQUEEZED = 30.0

_SAMPLED_ROWS = 20_000
# If no pair depended, at least one would stand out of the noise in at most this share of all releases.
_ALARMS = 0.01
# Levels of each side of a pair's table.
_OPENED = 12
_NEAR = 1.25

_COPULA = "a Gaussian copula over the levels of all attributes"
_KINDS = {
    "mixture": "a mixture of many simple profiles, fitted to the noisy tables",
    "independence": "independent attributes, because the noisy tables support no dependence",
}
_KNOWN_FROM = {
    "public": "public knowledge",
    "found": "found with noise, at a cost",
    "rows": "read from the records, at the custodian's risk",
    "unread": "drafted from the records, accepted unread",
}


def typical_errors(model: Model) -> tuple[float, float | None]:
    """Root mean squares of errors of a count over one attribute and over two, 19 times out of 20; None: no pairs."""
    one, pairs = (TWICE * math.sqrt(np.mean(sd**2)) if sd.size else None for sd in _standard_errors(model))
    return one or 0.0, pairs


def _standard_errors(model: Model) -> tuple[Floats, Floats]:
    """Of counts of each attribute's levels, of no more attributes than are drawn, and of each pair's cells."""
    names = model.measured_schema.names[:MAX_CHARTS]
    return np.array([model.estimate(name).standard_errors[0] for name in names]), pool(model.measured).pair_sd


def uses(model: Model, findings: Findings) -> dict[str, Any]:
    """What noisy tables and the model are good for, in grades and figures: what the first screen says follows from it.

    Of one column and of pairs: how many tables there are, their grade, the typical error of a count 19 times out of 20,
    and within what a group of a round size comes back.
    """
    cells, n = model.measured_schema.cells, model.n_rows
    tenth = max(n / 10, 1.0)
    power = 10 ** math.floor(math.log10(tenth))
    group = next(each * power for each in (5, 2, 1) if each * power <= tenth)

    def use(sds: Floats, sizes: NDArray[Any], error: float | None) -> dict[str, Any] | None:
        if error is None:
            return None
        low, high = max(group - error, 0.0), min(group + error, float(n))
        graded = grade(drowned(sds, sizes[: sds.size], n))
        return {"tables": sizes.size, "grade": graded, "error": error, "group": group, "low": low, "high": high}

    sizes = cells.sizes, cells.pair_sizes
    one, pairs = map(use, _standard_errors(model), sizes, typical_errors(model))
    return {
        "one": one,
        "pairs": pairs,
        "beyond": int(np.count_nonzero(findings.dependence)),
        "triples": sum(each.tables for each in model.certificate.measurements if each.order == 3),
        "sets": math.comb(cells.n_attributes, 3),
        "independent": model.settings.get("kind") == "independence",
        # Searched, and no value was common enough.
        "empty": [
            short(shown_name(each), 60)
            for each in model.schema.attributes
            if each.known_from == "found" and not each.n_values
        ],
    }


def publishable(model: Model, *, file_name: str = "MODEL.sklar") -> str:
    """The report as one HTML document."""
    return render("sklar.answer.report", "publishable.html.j2", shown_of(model, file_name))


def shown_of(model: Model, file_name: str) -> dict[str, Any]:
    """What the report shows of a model, for its template and those that extend it."""
    schema, certificate, findings = model.schema, model.certificate, find(model)
    kinds = Counter(each.kind for each in schema.attributes)
    odds, number = math.exp(min(certificate.epsilon, 700.0)), 1 / certificate.delta if certificate.delta else math.inf
    units = ((1e12, " trillion"), (1e9, " billion"), (1e6, " million"))
    named = (f"1 in {number / unit:.3g}{name}" for unit, name in units if number >= unit)
    chance = next(named, f"1 in {number:,.0f}") if certificate.delta else "none"
    risk, searched = risk_of(certificate), {each.attribute for each in certificate.domains}
    measured = model.measured_schema
    chosen = list(range(measured.n_attributes))
    if measured.n_attributes > MAX_CHARTS:
        # Those with the strongest dependences: fewer attributes than we want cannot form this many pairs.
        order = np.argsort(-findings.dependence, kind="stable")[: MAX_CHARTS**2]
        ranked = dict.fromkeys(np.stack([each[order] for each in measured.cells.pairs], axis=1).ravel().tolist())
        chosen = sorted(list(ranked)[:MAX_CHARTS])
    shapes, drawn = model.shapes, [(measured.attributes[i], findings.levels[measured.cells.levels(i)]) for i in chosen]
    charts = [draw(model, attribute, levels, shapes.get(attribute.name)) for attribute, levels in drawn]
    return {
        "schema": schema,
        "title": short(shown_table(schema), 120),
        "about": " ".join((schema.words.description or "").split()),
        "certificate": certificate,
        "file_name": short(file_name, 60),
        "n_rows": model.n_rows,
        "measured": measured.n_attributes,
        "kind": _KINDS.get(str(model.settings.get("kind")), _COPULA),
        "uses": uses(model, findings),
        "chance": chance,
        "factor": rounded_up(odds, 3) if odds < 1e6 else f"e^{rounded_up(certificate.epsilon, 3)}",
        "surest": odds / (1 + odds),
        "risk": risk,
        # How often an attacker's best guess is right, by what the attacker believed beforehand.
        "guesses": [
            (
                "even: one of two" if others == 1 else f"one of {others + 1}",
                _precise(risk.right(others)[0]),
                f"at most {_precise(risk.right(others)[1])}",
                f"at most {_precise(risk.sure(others))}",
            )
            for others in PRIORS
        ],
        "alarms": tuple((f"1 in {among:,}", f"at most {_precise(risk.found(among))}") for among in FALSE_ALARMS),
        **_spending(certificate, schema),
        "target": short(target_words(measured), 400),
        "earlier": tuple(short(name, 60) for name in certificate.earlier if name not in searched),
        "together": together(certificate),
        "others": () if model.measured.tree is None else [each.name for each in model.measured.tree.branches[1:]],
        "kinds": ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items())),
        "attributes": tuple(_described(each) for each in schema.attributes[:MAX_SCHEMA_ROWS]),
        "read_from_rows": tuple(short(name, 60) for name in certificate.read_from_rows[:MAX_LISTED]),
        "unread": tuple(short(name, 60) for name in certificate.unread[:MAX_LISTED]),
        "rules": tuple(short(rule_text(rule, schema.attributes), 200) for rule in schema.rules[:MAX_LISTED]),
        "charts": charts,
        "pairs": compare_pairs(model, findings) if measured.n_attributes > 1 else None,
        "asked": measured.attributes,
        # The paper's copula answers counts alone.
        "infers": model.copula.components() is not None,
        "versions": [(f"Version of {name}", number) for name, number in sorted(certificate.versions.items())],
    }


def described(attribute: Attribute) -> str:
    """What the schema says of an attribute, with its unit, on one line."""
    words = attribute.words
    said = (words.description, attribute.note, f"Unit: {words.unit}." if words.unit else "")
    return " ".join(" ".join(filter(None, said)).split())


def _described(attribute: Attribute) -> tuple[str, ...]:
    """The line of one attribute in the table of attributes."""
    title = shown_name(attribute)
    alike = title.lower().replace(" ", "_") == attribute.name.lower()
    name = title if alike else f"{title} ({attribute.name})"
    levels = shown_levels(attribute)
    listed = levels if len(levels) <= 8 else (*levels[:5], "…", *levels[-2:])
    return (
        short(name, 120),
        short(described(attribute), 400),
        f"{attribute.kind}, {attribute.n_levels:,} levels",
        ", ".join(short(level, 60) for level in listed),
        _KNOWN_FROM["unread" if attribute.reviewed == "unread" else attribute.known_from],
    )


def _spending(certificate: Certificate, schema: Schema) -> dict[str, Rows]:
    """What the search for domains and each stage measured, its noise and its share of the cost; each search apart."""
    power = 2 if certificate.mechanism == "gaussian" else 1

    def cost(spend: Spend) -> float:
        return float(np.sum(spend.moves * (spend.reach / spend.scales) ** power))

    searched = [cost(search_spend([each], certificate.budget)) for each in certificate.domains]
    spent = [
        ("search", "domains of attributes", each.tables, each.scale, own)
        for each, own in zip(certificate.domains, searched, strict=True)
    ]
    for each in certificate.measurements:
        # Scores are in parts of a row.
        noise = each.scale / PARTS if each.order > SCORES else each.scale
        spent.append((str(each.stage), each.what, each.tables, noise, cost(certificate.spend_of(each))))
    whole, measurements, searches = sum(own for *_, own in spent), [], []
    for (stage, what), group in groupby(spent, key=lambda each: each[:2]):
        _, _, tables, scales, costs = zip(*group, strict=True)
        low, high = f"{min(scales):,.1f}", f"{max(scales):,.1f}"
        shown = low if low == high else f"{low} to {high}"
        measurements.append((stage, what, f"{sum(tables):,}", shown, f"{sum(costs) / whole:.0%}"))
    for finding, share in zip(certificate.domains[:_MAX_SEARCHES], searched, strict=False):
        attribute = schema.attribute(finding.attribute)
        what = finding.words(attribute)
        name = short(shown_name(attribute), 60)
        searches.append((name, what, f"{finding.tables:,}", f"{finding.scale:,.1f}", f"{share / whole:.1%}"))
    return {"measurements": tuple(measurements), "searches": tuple(searches)}


def together(certificate: Certificate) -> str:
    """How many attributes were counted together at most, in words."""
    # Scores are of tables of so many attributes.
    most = max(2 if certificate.tokens else each.order % SCORES for each in certificate.measurements)
    return ("no", "one", "two", "three", "four")[min(most, 4)]


def _precise(share: float) -> str:
    """A bound as a percentage: rounded up, never to the nearest."""
    value = 100 * share
    places = 3 if value < 1 else 1
    # Not what the rounding of floats made larger: 90% is 90%.
    up = math.ceil(value * 10**places - 1e-6) / 10**places
    return f"{min(up, 100.0):.{places}f}".rstrip("0").rstrip(".") + "%"


class Findings(NamedTuple):
    """Shares of all levels among synthetic rows, shape (d,), and figures of all pairs of attributes, shape (n_pairs,).

    `dependence` is the share of rows that would have to change to make a pair independent; 0 unless it is beyond the
    noise. `reach`, shape (2, n_pairs), holds the ends of its 95% interval if its pattern is the estimated one. `ratios`
    are the squared differences between model and noisy table, divided by those that noise alone is expected to make.
    """

    levels: Floats
    pair_sd: Floats
    dependence: Floats
    reach: Floats
    ratios: Floats


def find(model: Model) -> Findings:
    """Work out the figures of a model."""
    model.measured_schema.require_square("a report")
    cells, estimates = model.measured_schema.cells, pool(model.measured)
    predicted, sampling = _predict(model)
    n, expected = estimates.n_rows, cells.flat(predicted)
    variance = np.repeat(estimates.pair_sd**2, cells.pair_sizes)
    if sampling:
        variance += n**2 * sampling * expected * (1 - expected)
    squares = (estimates.pairs - n * expected) ** 2 / variance
    dependence, reach = dependences(model)
    return Findings(
        levels=np.diagonal(predicted),
        pair_sd=estimates.pair_sd,
        dependence=dependence,
        reach=reach,
        ratios=np.add.reduceat(squares, cells.pair_offsets[:-1]) / cells.pair_sizes,
    )


def dependences(model: Model) -> tuple[Floats, Floats]:
    """How far pairs are from independence beyond the noise, shape (n_pairs,), with intervals, shape (2, n_pairs).

    The squares of a table's interaction, in units of its noise, sum to a noncentral chi-square with (r - 1)(c - 1)
    degrees of freedom. Errors of the margins, whose product was taken off, make each of its parts larger by at most
    the factor that it is divided by. Squares of Laplace noise have 2.5 times the variance, and longer tails.
    """
    estimates = pool(model.measured)
    levels, cells, m = margins(estimates), estimates.cells, estimates.cells.n_attributes
    distances, squares, sizes = (np.zeros(cells.n_pairs) for _ in range(3))
    for members in cells.alike():
        tables = PairTables(estimates, levels, members)
        # Half the L1 distance is the total variation distance from independence.
        found = tables.fitted() - tables.independent
        distances[members] = np.abs(found).sum(axis=(1, 2)) / 2
        sizes[members] = (found**2).sum(axis=(1, 2)) / tables.sd**2
        squares[members] = (tables.centered**2).sum(axis=(1, 2)) / tables.sd**2
    first, second = cells.pairs
    uneven = np.add.reduceat(levels**2, cells.offsets[:m]) - 1 / cells.sizes
    one, other = ((estimates.one_way_sd[each] / estimates.pair_sd) ** 2 for each in (first, second))
    widest = 1 + one * uneven[second] + other * uneven[first]
    freedom = (cells.sizes[first] - 1.0) * (cells.sizes[second] - 1.0)
    longer = 1.0 if model.certificate.mechanism == "gaussian" else 2.5
    # Laurent and Massart (2000), lemma 1: exceeded with a chance of at most e^-x, here an equal one of each pair.
    x = math.log(max(cells.n_pairs, 1) / _ALARMS)
    least = freedom + longer * (2 * np.sqrt(freedom * x) + 2 * x)
    beyond = (squares > widest * least) & (sizes > 0)
    # Wilson's way: the values of which the sum of squares lies within 1.96 of its standard errors. Noise adds between
    # one and `widest` for each degree of freedom.
    signal = squares - freedom * np.stack([widest, np.ones_like(widest)])
    middle = signal + 2 * TWICE**2 * widest
    half = 2 * TWICE * np.sqrt(np.maximum(widest * (middle - TWICE**2 * widest + longer * freedom * widest / 2), 0.0))
    per_size = np.where(beyond, distances / np.sqrt(np.where(sizes > 0, sizes, 1.0)), 0.0)
    distances = np.where(beyond, distances, 0.0)
    low, high = per_size * np.sqrt(np.maximum(middle + np.array([[-1.0], [1.0]]) * half, 0.0))
    # Denoising made the estimate smaller: the interval has it, too.
    return distances, np.stack([np.minimum(low, distances), np.clip(high, distances, 1.0)])


def _predict(model: Model) -> tuple[Floats, float]:
    """The probabilities of pairs of levels, with those of levels on the diagonal, shape (d, d).

    Without a closed form, and with rules, which change what the copula draws, they are counted in synthetic rows. The
    second value is 1 / rows then, because sampling has variance p (1 - p) / rows, and 0 otherwise.
    """
    schema = model.measured_schema
    known = None if schema.allowed else model.copula.predict_pairs()
    if known is not None:
        square = known.astype(np.float64)
        np.fill_diagonal(square, model.copula.margins())
        return square, 0.0
    rows = min(model.n_rows, _SAMPLED_ROWS)
    total, owner = np.zeros((schema.n_levels, schema.n_levels)), schema.cells.attribute_of_level
    level = np.arange(schema.n_levels) - schema.offsets[owner]
    for block in sample_codes(model.copula, rows, 0):
        ones = (block if model.dummies else block[owner] == level[:, None]).astype(np.float32)
        total += ones @ ones.T
    return total / rows, 1 / rows


def compare_pairs(model: Model, findings: Findings) -> dict[str, Any]:
    """What is shown about pairs of attributes."""
    cells, pair_sd, dependence, reach, ratios = model.measured_schema.cells, *findings[1:]
    names = tuple(shown_name(each) for each in model.measured_schema.attributes)
    expected = model.n_rows / cells.pair_sizes
    relative = pair_sd / expected

    def largest(figures: Floats, chosen: NDArray[np.bool_]) -> list[int]:
        order = np.argsort(-figures, kind="stable")[:MAX_LISTED]
        return [int(index) for index in order if chosen[index]]

    def name(index: int) -> str:
        return short(" \N{MULTIPLICATION SIGN} ".join(names[each[index]] for each in cells.pairs), 90)

    def noise(index: int) -> str:
        return f"± {TWICE * pair_sd[index]:,.0f}"

    def opened(index: int) -> dict[str, Any]:
        """The noisy table of a pair: its largest levels, and how far each count may be off."""
        own = [model.measured_schema.attributes[each[index]] for each in cells.pairs]
        counts = model.estimate(*(each.name for each in own)).counts
        kept = [np.sort(np.argsort(-counts.sum(axis=1 - at), kind="stable")[:_OPENED]) for at in (0, 1)]
        labels = [[short(shown_levels(each)[k], 40) for k in chosen] for each, chosen in zip(own, kept, strict=True)]
        rows = [[f"{count:,.0f}" for count in row] for row in np.maximum(counts[np.ix_(*kept)], 0.0)]
        return {
            "anchor": f"pair-{index}",
            "name": name(index),
            "error": noise(index),
            "head": ["", *labels[1]],
            "rows": [(label, *row) for label, row in zip(labels[0], rows, strict=True)],
            "whole": kept[0].size * kept[1].size == counts.size,
        }

    strongest, near = largest(dependence, dependence > 0), float(np.mean(ratios < _NEAR))
    told = f"The strongest pair is {name(strongest[0])}." if strongest else "No pair stands out of the noise."
    square, labels = cells.symmetric(dependence), list(names)
    if len(names) > MAX_MAP:
        # Neighbors are drawn together.
        groups = np.array_split(np.arange(len(names)), MAX_MAP)
        starts = np.array([group[0] for group in groups])
        square = np.maximum.reduceat(np.maximum.reduceat(square, starts, axis=0), starts, axis=1)
        labels = [f"{group[0] + 1} to {group[-1] + 1}" for group in groups]
    heat_map, width = svg.heat_map(
        square,
        labels,
        title="Dependence between attributes, corrected for noise",
        description=f"Darker cells show stronger dependence; empty ones show none beyond the noise. {told}",
        links=None
        if len(names) > MAX_MAP
        else {(int(cells.pairs[0][at]), int(cells.pairs[1][at])): f"#pair-{at}" for at in strongest},
    )
    return {
        "number": cells.n_pairs,
        "heat_map": heat_map,
        "map_width": width,
        "groups": MAX_MAP if len(names) > MAX_MAP else 0,
        "strongest": [
            (
                name(at),
                f"{100 * dependence[at]:.1f}",
                f"{100 * reach[0, at]:.1f} to {100 * reach[1, at]:.1f}",
                noise(at),
            )
            for at in strongest
        ],
        "opened": [opened(at) for at in strongest],
        "alarms": _ALARMS,
        "near_ratio": _NEAR,
        "near": near,
        "worst": [(name(at), f"{ratios[at]:.2f}") for at in largest(ratios, ratios >= _NEAR)],
        "noisy": int(np.count_nonzero(relative > 1)),
        "noisiest": [
            (name(at), f"{cells.pair_sizes[at]:,}", f"{expected[at]:,.1f}", noise(at))
            for at in largest(relative, relative > 1)
        ],
    }


def _unless_noise(text: str, count: float, half_width: float) -> str:
    """What to say of a noisy count, or that it is nothing but noise: nobody counts less than nothing."""
    return text if count > 0 else f"0 (noise: ±{half_width:,.0f})"


def draw(model: Model, attribute: Attribute, synthetic: Floats, shape: Shape | None = None) -> dict[str, Any]:
    """The drawings of an attribute with error bars, in words and figures; `synthetic` are shares of synthetic rows."""
    estimate, n, labels = model.estimate(attribute.name), model.n_rows, shown_levels(attribute)
    counts, half, every = estimate.counts, estimate.high - estimate.counts, np.arange(attribute.n_levels)
    on_axis = attribute.bin_codes if attribute.edges else every[:0]
    apart = np.setdiff1d(every, on_axis)
    if on_axis.size <= 1:
        # One bin has no shape.
        on_axis, apart = on_axis[:0], every
    shown, left_out = apart, apart[:0]
    if apart.size > MAX_BARS:
        # The largest levels get a bar each, in the order of the schema; the others share one.
        order = np.argsort(-counts[apart], kind="stable")
        shown, left_out = np.sort(apart[order[:MANY_BARS]]), np.sort(apart[order[MANY_BARS:]])

    def bar(label: str, codes: NDArray[np.int64]) -> svg.Bar:
        # Noise of levels is independent: variances add.
        count, reach = float(counts[codes].sum()), math.sqrt(float((half[codes] ** 2).sum()))
        low, high, mark = (count - reach) / n, (count + reach) / n, float(synthetic[codes].sum())
        told = _unless_noise(percent(count / n), count, reach)
        return svg.Bar(label=label, value=count / n, low=low, high=high, mark=mark, told=told)

    entries = [bar(labels[k], every[k : k + 1]) for k in shown]
    largest = int(np.argmax(counts))
    share, low, high = (max(float(each[largest]), 0.0) / n for each in (counts, estimate.low, estimate.high))
    told = (
        f"The largest is {short(labels[largest], 60)} with {percent(share)} of the rows, 95% interval {percent(low)} "
        f"to {percent(min(high, 1.0))}; synthetic rows have {percent(float(synthetic[largest]))}."
    )
    title, axis = f"Shares of the rows by {short(shown_name(attribute), 60)}", None
    what = "of the rows with each value"
    if on_axis.size:
        ends = {"integer": "numbers", "real": "numbers", "date": "dates", "datetime": "moments", "time": "times of day"}
        what = f"of the rows between two {ends.get(attribute.kind, f'{attribute.kind}s')}: a bar's area is its share"
        what += "; a line is a single value, with a bar below" * bool(attribute.points)
        other = f"; {'other ' * bool(attribute.points)}bars below are of what lies on no axis"
        what += other * (apart.size > len(attribute.points))
        lows, highs = (attribute.edges[:-1], attribute.edges[1:]) if shape is None else shape.ends
        axis = svg.bins(_on_axis(attribute, (min(lows), max(highs)), n, counts, half, synthetic), title, told)
    if left_out.size:
        what += f". The {left_out.size:,} smallest values have one bar together"
        entries.append(bar(f"{left_out.size:,} others together", left_out))
    lows, highs = (np.maximum(each, 0.0) for each in (estimate.low, estimate.high))
    return {
        "name": short(with_unit(attribute, shown_name(attribute)), 90),
        "column": "" if shown_name(attribute) == attribute.name else short(attribute.name, 60),
        "about": " ".join((attribute.words.description or "").split()),
        "sentence": f"Share {what}.",
        "on_axis": axis,
        # Below an axis a bar stands for its share of all rows, not for the largest of a few.
        "apart": svg.bars(entries, title, told, least=0.5 if on_axis.size else 1e-9) if entries else None,
        "figures": tuple(
            (
                short(labels[k], 80),
                _unless_noise(f"{counts[k]:,.0f}", counts[k], half[k]),
                _unless_noise(percent(counts[k] / n), counts[k], half[k]),
                f"{lows[k]:,.0f} to {highs[k]:,.0f}",
                f"{synthetic[k] * n:,.0f}",
            )
            for k in (every if attribute.n_levels <= _MAX_FIGURES else ())
        ),
    }


def _on_axis(
    attribute: Attribute, ends: tuple[float, float], n: int, counts: Floats, half: Floats, synthetic: Floats
) -> svg.Binned:
    """The bins of an attribute between the ends of what is drawn, neighbors together where they are too many."""
    labels, edges = shown_levels(attribute), np.clip(np.array(attribute.edges, dtype=np.float64), *ends)
    codes, edges = attribute.bin_codes[np.diff(edges) > 0], np.unique(edges)
    first, last = svg.inner(edges, np.maximum(synthetic[codes], 0.0))
    outer, beyond = np.delete(codes, np.s_[first:last]), ""
    if outer.size:
        count, reach = float(counts[outer].sum()), math.sqrt(float((half[outer] ** 2).sum()))
        end = svg.tick_text(attribute, float(edges[-1 if last < codes.size else 0]))
        beyond = f"{_unless_noise(percent(count / n), count, reach)} of the rows lie beyond, as far as {end}"
    codes, edges = codes[first:last], edges[first : last + 1]
    starts = np.unique(np.linspace(0, codes.size, min(codes.size, _MAX_BINS) + 1).astype(np.int64))[:-1]
    heaps = zip(attribute.points, (counts[attribute.point_codes] / n).tolist(), strict=True)
    counts, marks = (np.add.reduceat(each[codes], starts) for each in (counts, synthetic))
    half = np.sqrt(np.add.reduceat(half[codes] ** 2, starts))
    kept = edges[[*starts, codes.size]]
    middles = (kept[:-1] + kept[1:]) / 2
    # The axis stays linear unless half of the rows would be squeezed into a small part of it.
    weights, sizes = np.maximum(counts, 0.0) + 1e-9, np.abs(middles)
    median = np.quantile(sizes, 0.5, weights=weights, method="inverted_cdf")
    scale = 0.0 if sizes.max() < _SQUEEZED * median else svg.axis_scale(attribute, middles, weights)
    shares = np.stack([*(np.maximum(each, 0.0) / n for each in (counts, counts - half, counts + half)), marks])
    told = [
        f"{labels[codes[start]]}{' and on' if starts.size < codes.size else ''}: "
        f"{_unless_noise(percent(counts[k] / n), counts[k], half[k])}, 95% interval {percent(float(shares[1, k]))} to "
        f"{percent(float(shares[2, k]))}; synthetic rows {percent(float(marks[k]))}"
        for k, start in enumerate(starts)
    ]
    return svg.binned(attribute, kept, scale, shares, told, beyond, heaps)
