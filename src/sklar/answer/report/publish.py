"""The publishable report, made from a model alone: this module decides what is shown, the template has the words.

Equal models give equal bytes: the page shows no time and no host, and random numbers come from a fixed seed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklar.answer.effects import Floats, normal_quantile
from sklar.answer.report import svg
from sklar.answer.report.render import Rows, percent, render, short
from sklar.budget.certificate import SCORES, Certificate
from sklar.budget.forecast import RANGE, TWICE, grade, group_of, ratios, rms
from sklar.budget.plan import target_words
from sklar.budget.risk import FALSE_ALARMS, PRIORS, risk_of
from sklar.budget.search import search_spend
from sklar.draw.decode import Shape
from sklar.draw.repair import sample_codes
from sklar.fitting.denoise import PairTables
from sklar.fitting.margins import margins, pool
from sklar.kernel.cells import Cells
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
MAX_MAP = 30
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
_OPENED = 8
# How much more than all others outer numbers of noise alone move a column before its reach is hidden.
_MOVED = 3.0
_NEAR = 1.25

_COPULA = "a Gaussian copula over the levels of all columns"
_KINDS = {
    "mixture": "a mixture of many simple profiles, fitted to noisy tables",
    "independence": "independent columns, because the noisy tables support no dependence",
}


def _errors_of(model: Model) -> tuple[tuple[Floats, NDArray[Any]], ...]:
    """Standard errors of counts of each attribute's levels, of no more attributes than are drawn, and of pairs' cells.

    With the numbers of levels or cells.
    """
    names, cells = model.measured_schema.names[:MAX_CHARTS], model.measured_schema.cells
    own = np.array([model.estimate(name).standard_errors[0] for name in names])
    return (own, cells.sizes[: own.size]), (pool(model.measured).pair_sd, cells.pair_sizes)


def uses(model: Model, findings: Findings) -> dict[str, Any]:
    """What noisy tables and the model are good for: the first screen and the README of a release say this.

    Of one column and of pairs: their grade, the typical error of a count 19 times out of 20, and in words within what a
    group of average size comes back. Figures are those of a forecast.
    """
    cells, n, stated = model.measured_schema.cells, model.n_rows, model.certificate
    counted = "people" if stated.count not in (None, "rows") else "rows"
    size = f"{'' if stated.public_rows is not None else 'about '}{n:,}"

    def use(sds: Floats, sizes: NDArray[Any]) -> dict[str, Any] | None:
        if not sds.size:
            return None
        error, group = TWICE * rms(sds, sizes), group_of(sizes, n)
        words = f"A group of average size, {group:,},"
        if error <= group:
            high = min(group + error, n)
            words += f" comes back as {group - error:,.0f} to {high:,.0f}, 19 times out of 20."
        elif error < n:
            words += f" cannot be told from none: only groups above {error:,.0f} of {size} {counted} stand out."
        else:
            words = f"No group stands out: a count is off by up to {error:,.0f}, and there are {size} {counted} in all."
        return {"grade": grade(sds, sizes, n), "error": error, "words": words}

    one, pairs = (use(*own) for own in _errors_of(model))
    lost, attributes = unbounded(model, findings), model.schema.attributes
    return {
        "one": one,
        "pairs": pairs,
        "size": size,
        "counted": counted,
        "beyond": int(np.count_nonzero(findings.dependence)),
        "triples": sum(each.tables for each in stated.measurements if each.order == 3),
        "sets": math.comb(cells.n_attributes, 3),
        "kind": _KINDS.get(str(model.settings.get("kind")), _COPULA),
        "independent": model.settings.get("kind") == "independence",
        # Searched, and no value was common enough.
        "empty": [_name(each) for each in attributes if each.known_from == "found" and not each.n_values],
        "unbounded": [_name(each) for each in attributes if each.name in lost],
        "together": together(stated),
    }


def _name(attribute: Attribute, limit: int = 60) -> str:
    return short(shown_name(attribute), limit)


def unbounded(model: Model, findings: Findings) -> set[str]:
    """Columns of numbers of which the noise hides how far they reach.

    Beside its heaps a column has fewer rows than its search needs to find a range; or nearly all that moves the
    synthetic numbers away from their middle lies in outer bins that together hold no more than their noise.
    """
    measured, lost, shapes = model.measured_schema, set[str](), model.shapes
    needed = {each.attribute: RANGE * each.scale for each in model.certificate.domains if each.of == "domain"}
    for place, attribute in enumerate(measured.attributes):
        if attribute.known_from != "found" or not attribute.edges:
            continue
        found, codes = model.estimate(attribute.name), attribute.bin_codes
        if float(found.counts[codes].sum()) < needed.get(attribute.name, 0.0):
            lost.add(attribute.name)
            continue
        shape, edges = shapes.get(attribute.name), np.array(attribute.edges, dtype=np.float64)
        lows, highs = (edges[:-1], edges[1:]) if shape is None else shape.ends
        held, middles = np.maximum(findings.levels[measured.cells.levels(place)][codes], 0.0), (lows + highs) / 2
        moved = held * np.abs(middles - np.quantile(middles, 0.5, weights=held + 1e-12, method="inverted_cdf"))
        solid = np.full(codes.size, True)  # noqa: FBT003
        for way in (slice(None), slice(None, None, -1)):
            # From each end on, bins that together hold no more than their noise.
            upto = found.counts[codes][way].cumsum() > np.sqrt(((found.high - found.counts)[codes][way] ** 2).cumsum())
            solid[way][: int(upto.argmax()) if upto.any() else codes.size] = False
        lost |= {attribute.name} if moved[~solid].sum() > _MOVED * moved[solid].sum() else set()
    return lost


def publishable(model: Model, *, file_name: str = "MODEL.sklar") -> str:
    """The report as one HTML document."""
    return render("sklar.answer.report", "publishable.html.j2", shown_of(model, file_name))


def shown_of(model: Model, file_name: str) -> dict[str, Any]:
    """What the report shows of a model, for its template and those that extend it."""
    schema, certificate, findings = model.schema, model.certificate, find(model)
    odds, measured = math.exp(min(certificate.epsilon, 700.0)), model.measured_schema
    searched, shapes = {each.attribute for each in certificate.domains}, model.shapes
    chosen = strongest(measured.cells, findings, MAX_CHARTS)
    drawn = [(measured.attributes[at], findings.levels[measured.cells.levels(at)]) for at in chosen]
    charts = [draw(model, attribute, levels, shapes.get(attribute.name)) for attribute, levels in drawn]
    return {
        "schema": schema,
        "title": short(shown_table(schema), 120),
        "certificate": certificate,
        "file_name": short(file_name, 60),
        "n_rows": model.n_rows,
        "measured": measured.n_attributes,
        "uses": uses(model, findings),
        "odds": odds,
        "risk": risk_of(certificate),
        "priors": PRIORS,
        "false_alarms": FALSE_ALARMS,
        **_spending(certificate, schema),
        "target": short(target_words(measured), 400),
        "earlier": tuple(short(name, 60) for name in certificate.earlier if name not in searched),
        "others": () if model.measured.tree is None else [each.name for each in model.measured.tree.branches[1:]],
        "kinds": Counter(each.kind for each in schema.attributes),
        "attributes": schema.attributes[:MAX_SCHEMA_ROWS],
        "described": described,
        "shown_name": shown_name,
        "shown_levels": shown_levels,
        "rules": tuple(short(rule_text(rule, schema.attributes), 200) for rule in schema.rules[:MAX_LISTED]),
        "charts": [each for each in charts if each["stands_out"]],
        "drowned": [each["name"] for each in charts if not each["stands_out"]],
        "pairs": compare_pairs(model, findings) if measured.n_attributes > 1 else None,
        "asked": measured.attributes,
        "group": _largest_group(model),
        # The paper's copula answers counts alone.
        "infers": model.copula.components() is not None,
    }


def described(attribute: Attribute) -> str:
    """What the schema says of an attribute, with its unit, on one line."""
    words = attribute.words
    said = (words.description, attribute.note, f"Unit: {words.unit}." if words.unit else "")
    return " ".join(" ".join(filter(None, said)).split())


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


def strongest(cells: Cells, findings: Findings, most: int) -> list[int]:
    """The attributes of the strongest dependences, in the order of the schema; where there is none, the first ones."""
    if cells.n_attributes <= most:
        return [*range(cells.n_attributes)]
    # Fewer attributes than are wanted cannot form this many pairs.
    order = np.argsort(-findings.dependence, kind="stable")[: most**2]
    ranked = dict.fromkeys(np.stack([each[order] for each in cells.pairs], axis=1).ravel().tolist())
    return sorted(list(ranked)[:most])


def _largest_group(model: Model) -> tuple[tuple[Attribute, str], ...]:
    """The largest group of the first attribute, and of the last one: what a question may well ask for."""
    attributes = model.measured_schema.attributes
    own = attributes if len(attributes) == 1 else (attributes[0], attributes[-1])
    counts = model.estimate(*(each.name for each in own)).counts
    places = np.unravel_index(int(np.argmax(counts)), counts.shape)
    return tuple((each, each.levels[place]) for each, place in zip(own, places, strict=True))


def compare_pairs(model: Model, findings: Findings) -> dict[str, Any]:
    """What is shown about pairs of attributes."""
    measured, (_, pair_sd, dependence, reach, near) = model.measured_schema, findings
    cells, names = measured.cells, tuple(_name(each) for each in measured.attributes)
    ranked = [int(at) for at in np.argsort(-dependence, kind="stable")[: np.count_nonzero(dependence)]]
    shown = strongest(cells, findings, MAX_MAP)
    on_map = [at for at in ranked if all(each[at] in shown for each in cells.pairs)]

    def name(index: int) -> str:
        return short(" \N{MULTIPLICATION SIGN} ".join(names[each[index]] for each in cells.pairs), 90)

    def noise(index: int) -> str:
        return f"± {TWICE * pair_sd[index]:,.0f}"

    def opened(index: int) -> dict[str, Any]:
        """The noisy table of a pair: its largest levels, and the interval of each count."""
        own = [measured.attributes[each[index]] for each in cells.pairs]
        found = model.estimate(*(each.name for each in own))
        kept = [np.sort(np.argsort(-found.counts.sum(axis=1 - at), kind="stable")[:_OPENED]) for at in (0, 1)]
        labels = [[short(shown_levels(each)[k], 40) for k in chosen] for each, chosen in zip(own, kept, strict=True)]
        counts, low, high = (np.maximum(each[np.ix_(*kept)], 0) for each in (found.counts, found.low, found.high))
        cells_told = np.vectorize("{:,.0f} ({:,.0f} to {:,.0f})".format, otypes=[object])(counts, low, high).tolist()
        return {
            "anchor": f"pair-{index}",
            "name": name(index),
            "error": noise(index),
            "head": ["", *labels[1]],
            "rows": [(label, *row) for label, row in zip(labels[0], cells_told, strict=True)],
            "whole": counts.size == found.counts.size,
        }

    first, second = ([shown.index(each[at]) for at in on_map] for each in cells.pairs)
    links = {(one, two): f"#pair-{at}" for one, two, at in zip(first, second, on_map, strict=True)}
    told = f"The strongest pair is {name(ranked[0])}." if ranked else "No pair stands out of the noise."
    heat_map, width = svg.heat_map(
        cells.symmetric(dependence)[np.ix_(shown, shown)],
        [names[each] for each in shown],
        links,
        title="Dependence between columns, corrected for noise",
        description=f"Darker cells show stronger dependence; empty ones show none beyond the noise. {told}",
    )
    return {
        "number": cells.n_pairs,
        "heat_map": heat_map,
        "map_width": width,
        "shown": len(shown),
        "strongest": [
            (
                name(at),
                f"{100 * dependence[at]:.1f}",
                f"{100 * reach[0, at]:.1f} to {100 * reach[1, at]:.1f}",
                noise(at),
            )
            for at in ranked[:MAX_LISTED]
        ],
        "opened": [opened(at) for at in on_map],
        "alarms": _ALARMS,
        "near_ratio": _NEAR,
        "near": float(np.mean(near < _NEAR)),
        "worst": name(int(np.argmax(near))) if (near >= _NEAR).any() else "",
        "noisy": int(np.count_nonzero(ratios(pair_sd, cells.pair_sizes, model.n_rows) > 1)),
    }


def _unless_noise(text: str, count: float, half_width: float) -> str:
    """What to say of a noisy count, or that it is nothing but noise: nobody counts less than nothing."""
    return text if count > 0 else f"0 (noise: ±{half_width:,.0f})"


def draw(model: Model, attribute: Attribute, synthetic: Floats, shape: Shape | None = None) -> dict[str, Any]:
    """The drawings of an attribute with error bars, in words and figures; `synthetic` are shares of synthetic rows."""
    estimate, n, labels = model.estimate(attribute.name), model.n_rows, list(shown_levels(attribute))
    counts, half, every = estimate.counts, estimate.high - estimate.counts, np.arange(attribute.n_levels)
    on_axis = attribute.bin_codes if attribute.edges else every[:0]
    if attribute.known_from == "found" and on_axis.size and attribute.outside == "clip":
        # What lies beyond the range that was found counts in the last bin.
        labels[on_axis[-1]] += " or more"
    # Noise of as many levels is this large in one of a hundred releases.
    least = float(half.max()) / TWICE * normal_quantile(1 - _ALARMS / every.size)
    title, axis, notes = f"Shares of the rows by {_name(attribute)}", None, list[str]()
    largest = int(np.argmax(counts))
    share, low, high = (max(float(each[largest]), 0.0) / n for each in (counts, estimate.low, estimate.high))
    told = (
        f"The largest is {short(labels[largest], 60)} with {percent(share)} of the rows, 95% interval {percent(low)} "
        f"to {percent(min(high, 1.0))}; synthetic rows have {percent(float(synthetic[largest]))}."
    )
    apart = every
    # One bin has no shape.
    if on_axis.size > 1:
        lows, highs = (attribute.edges[:-1], attribute.edges[1:]) if shape is None else shape.ends
        drawn = _on_axis(attribute, (min(lows), max(highs)), n, (counts, half, synthetic), labels)
        drawn_codes = [*on_axis, *(spike.code for spike in drawn.spikes)]
        axis, apart = svg.bins(drawn, title, told), np.setdiff1d(every, drawn_codes)
        notes += ["A thin line is a single value."] * bool(drawn.spikes)
    shown, left_out = apart, apart[:0]
    if apart.size > MAX_BARS:
        # The largest levels get a bar each, in the order of the schema; the others share one.
        order = np.argsort(-counts[apart], kind="stable")
        shown, left_out = np.sort(apart[order[:MANY_BARS]]), np.sort(apart[order[MANY_BARS:]])
        notes.append(f"The {left_out.size:,} smallest values have one bar together.")

    def bar(label: str, codes: NDArray[np.int64]) -> svg.Bar:
        # Noise of levels is independent: variances add.
        count, reach = float(counts[codes].sum()), math.sqrt(float((half[codes] ** 2).sum()))
        low, high, mark = (count - reach) / n, (count + reach) / n, float(synthetic[codes].sum())
        return svg.Bar(label, count / n, low, high, mark, percent(min(max(count / n, 0.0), 1.0)))

    entries = [bar(labels[k], every[k : k + 1]) for k in shown]
    entries += [bar(f"{left_out.size:,} others together", left_out)] * bool(left_out.size)
    lows, highs = (np.clip(each, 0.0, n) for each in (estimate.low, estimate.high))
    return {
        "name": short(with_unit(attribute, shown_name(attribute)), 90),
        "column": "" if shown_name(attribute) == attribute.name else short(attribute.name, 60),
        "about": " ".join((attribute.words.description or "").split()),
        "notes": " ".join(notes),
        "stands_out": least < min(float(counts.max()), n / 2),
        "on_axis": axis,
        "apart": svg.bars(entries, title, told) if entries else None,
        "figures": tuple(
            (
                short(labels[k], 80),
                _unless_noise(f"{counts[k]:,.0f}", counts[k], half[k]),
                _unless_noise(percent(min(counts[k] / n, 1.0)), counts[k], half[k]),
                f"{lows[k]:,.0f} to {highs[k]:,.0f}",
                f"{synthetic[k] * n:,.0f}",
            )
            for k in (every if attribute.n_levels <= _MAX_FIGURES else ())
        ),
    }


def _on_axis(
    attribute: Attribute, ends: tuple[float, float], n: int, figures: tuple[Floats, ...], labels: Sequence[str]
) -> svg.Binned:
    """The bins of an attribute between the ends of what is drawn, neighbors together where they are too many.

    `figures` are noisy counts, half of their intervals, and synthetic shares.
    """
    counts, half, marks = figures
    edges = np.clip(np.array(attribute.edges, dtype=np.float64), *ends)
    codes, edges = attribute.bin_codes[np.diff(edges) > 0], np.unique(edges)
    first, last = svg.inner(np.maximum(marks[codes], 0.0))
    # Common single values stand in their place where that is near.
    room = (edges[last] - edges[first]) / 4
    for point, share in zip(attribute.points, marks[attribute.point_codes].tolist(), strict=True):
        if share >= svg.TAIL and edges[first] - room <= point <= edges[last] + room:
            place = int(np.clip(np.searchsorted(edges, point, "right") - 1, 0, codes.size - 1))
            first, last = min(first, place), max(last, place + 1)
    outer, beyond = np.delete(codes, np.s_[first:last]), ""
    if float(counts[outer].sum()) > (reach := math.sqrt(float((half[outer] ** 2).sum()))):
        end = svg.tick_text(attribute, float(edges[-1 if last < codes.size else 0]))
        beyond = f"{percent(counts[outer].sum() / n)} ± {percent(reach / n)} lie beyond, as far as {end}"
    codes, edges = codes[first:last], edges[first : last + 1]
    starts = np.unique(np.linspace(0, codes.size, min(codes.size, _MAX_BINS) + 1).astype(np.int64))[:-1]
    held, moved = (np.add.reduceat(each[codes], starts) for each in (counts, marks))
    reaches = np.sqrt(np.add.reduceat(half[codes] ** 2, starts))
    kept = edges[[*starts, codes.size]]
    middles = (kept[:-1] + kept[1:]) / 2
    # The axis stays linear unless half of the rows would be squeezed into a small part of it.
    weights, sizes = np.maximum(held, 0.0) + 1e-9, np.abs(middles)
    median = np.quantile(sizes, 0.5, weights=weights, method="inverted_cdf")
    scale = 0.0 if sizes.max() < _SQUEEZED * median else svg.axis_scale(attribute, middles, weights)
    shares = _shares(held, reaches, moved, n)
    told = [
        f"{labels[codes[start]]}{' and on' if starts.size < codes.size else ''}: "
        f"{_unless_noise(percent(shares[0, k]), held[k], reaches[k])}, 95% interval {percent(float(shares[1, k]))} to "
        f"{percent(float(shares[2, k]))}; synthetic rows {percent(float(moved[k]))}"
        for k, start in enumerate(starts)
    ]
    alone = _shares(counts, half, marks, n).T.tolist()
    heaps = ((point, alone[at], at) for point, at in zip(attribute.points, attribute.point_codes.tolist(), strict=True))
    return svg.binned(attribute, kept, scale, shares, told, beyond, heaps)


def _shares(counts: Floats, half: Floats, marks: Floats, n: int) -> Floats:
    """Shares of counts, of the ends of their intervals, and of synthetic rows: what noise makes of no rows, or all."""
    return np.stack([*(np.clip(each / n, 0.0, 1.0) for each in (counts, counts - half, counts + half)), marks])
