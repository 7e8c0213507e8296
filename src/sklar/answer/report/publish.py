"""The publishable report: what was released, what it promises, how far to trust it. Made from a model alone.

Equal models give equal bytes: no time, no host, no random numbers but those of a fixed seed.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from sklar.answer.report import page, svg
from sklar.answer.report.page import Section, paragraph, short, text
from sklar.budget.certificate import Certificate, above_diagonal
from sklar.draw.repair import sample_codes
from sklar.files.model import Model
from sklar.fitting.denoise import interactions
from sklar.fitting.latent import LatentModel, predict_pairs
from sklar.fitting.margins import Estimates, margins, pool
from sklar.public.rules import rule_text
from sklar.public.schema import Attribute, Schema

# What keeps the page readable, and below 5 MB, however wide the table is.
MAX_CHARTS = 48
MAX_BARS = 20
MANY_BARS = 12
MAX_MAP = 40
MAX_LISTED = 20
MAX_SCHEMA_ROWS = 200
_SAMPLED_ROWS = 20_000
_NO_DEPENDENCE = 0.005
_RATIOS = (0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Findings:
    """What the noisy tables say, worked out once. Pairs are in the order (0, 1), (0, 2), ... (1, 2), ..."""

    model: Model
    estimates: Estimates
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    cells: NDArray[np.int64]
    pair_sd: NDArray[np.float64]
    dependence: NDArray[np.float64]
    ratios: NDArray[np.float64]
    margins: NDArray[np.float64]

    @property
    def expected(self) -> NDArray[np.float64]:
        """Rows in an average cell of each pair."""
        return np.asarray(self.model.n_rows / self.cells)

    def pair(self, index: int) -> str:
        """A pair by name."""
        names = self.model.measured_schema.names
        return f"{names[self.first[index]]} \N{MULTIPLICATION SIGN} {names[self.second[index]]}"


def publishable(model: Model, *, file_name: str = "MODEL.sklar") -> str:
    """The report as one HTML document."""
    found = _findings(model)
    schema, certificate = model.schema, model.certificate
    size = f"{model.n_rows:,}" if certificate.public_rows is not None else f"about {model.n_rows:,}"
    epsilon = f"{certificate.spent_epsilon:.3g}"
    opening = page.facts(
        [
            ("Rows", size),
            ("Attributes", f"{schema.n_attributes:,}"),
            ("Privacy spent, ε" if certificate.claimed_by is None else "Privacy claimed, ε", epsilon),
            ("Chance of failure, δ", _one_in(certificate.delta)),
            ("Typical error of a simple count", f"± {_rms(_margin_sd(model)):,.0f} rows"),
            *(
                [("Typical error of a paired count", f"± {_rms(found.pair_sd):,.0f} rows")]
                if found.pair_sd.size
                else []
            ),
        ]
    )
    sections = [
        _released(model, size, file_name),
        _promise(model),
        _budget(model),
        _schema(model),
        _margins(found),
        *([_dependence(found), _fit(found), _noise(found)] if found.pair_sd.size else []),
        _usage(model, file_name),
        _citing(model, file_name),
    ]
    return page.page(
        title=f"{schema.name}: release report",
        kicker="Release report · safe to publish",
        heading=f"Synthetic version of “{schema.name}”",
        lead="A table of invented records that follows the statistics of a confidential one, released with a "
        "mathematical limit on what it can reveal about any one row.",
        opening=opening,
        sections=sections,
        foot=paragraph(
            "Made by Sklar from the model file alone. Everything on this page is computed from noisy, differentially "
            "private statistics; no confidential record was read to make it, and publishing it costs no privacy."
        ),
    )


def _findings(model: Model) -> _Findings:
    schema = model.measured_schema
    estimates = pool(model.measured)
    first, second = np.triu_indices(schema.n_attributes, 1)
    levels = margins(estimates)
    paired = bool(first.size)
    predicted, extra = _predicted(model)
    return _Findings(
        model=model,
        estimates=estimates,
        first=first,
        second=second,
        cells=schema.sizes[first] * schema.sizes[second],
        pair_sd=estimates.pair_sd[first, second],
        # Half the L1 distance: the total variation between the pair and what independence would give.
        dependence=interactions(estimates, levels) / (2 * model.n_rows) if paired else np.zeros(0),
        ratios=_ratios(model, estimates, predicted, extra)[first, second] if paired else np.zeros(0),
        margins=_predicted_margins(model, predicted),
    )


def _predicted(model: Model) -> tuple[NDArray[np.float64], float]:
    """The model's two-way probabilities, with one-way ones on the diagonal, and the variance factor of drawing them."""
    schema = model.measured_schema
    if isinstance(model.copula, LatentModel) and not schema.rules:
        predicted = predict_pairs(model.copula).astype(np.float64)
        np.fill_diagonal(predicted, model.copula.probabilities.mean(axis=0, dtype=np.float64))
        return predicted, 0.0
    rows = min(model.n_rows, _SAMPLED_ROWS)
    total = np.zeros((schema.n_levels, schema.n_levels))
    for block in sample_codes(model.copula, rows, 0):
        if model.dummies:
            ones = block.view(np.bool_).astype(np.float32)
        else:
            ones = np.zeros((schema.n_levels, block.shape[1]), dtype=np.float32)
            ones[(block + schema.offsets[:-1, None]).ravel(), np.tile(np.arange(block.shape[1]), len(block))] = 1.0
        total += ones @ ones.T
    return total / rows, 1.0 / rows


def _predicted_margins(model: Model, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.diagonal(predicted)).copy() if predicted.size else np.zeros(model.measured_schema.n_levels)


def _ratios(model: Model, estimates: Estimates, predicted: NDArray[np.float64], extra: float) -> NDArray[np.float64]:
    """Mean squared difference of model and noisy table over what noise alone makes, by pair, shape (m, m)."""
    schema, n = model.measured_schema, model.n_rows
    offsets, sizes = schema.offsets[:-1], schema.sizes
    block = np.repeat(np.arange(schema.n_attributes), sizes)
    squares = (estimates.pairs - n * predicted) ** 2
    variance = (estimates.pair_sd**2)[block][:, block]
    if extra:
        variance = variance + n**2 * extra * predicted * (1 - predicted)
    squares = np.where(above_diagonal(schema), squares / np.where(variance > 0, variance, 1.0), 0.0)
    summed = np.add.reduceat(np.add.reduceat(squares, offsets, axis=0), offsets, axis=1)
    return np.asarray(summed / np.outer(sizes, sizes))


def _margin_sd(model: Model) -> NDArray[np.float64]:
    """The standard error of a one-way count of each attribute, or of the first few where there are many."""
    names = model.measured_schema.names[:MAX_CHARTS]
    return np.array([float(model.estimate(name).standard_errors[0]) for name in names])


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


def _kind(model: Model) -> str:
    if not isinstance(model.copula, LatentModel):
        return "a Gaussian copula over the levels of all attributes"
    return {
        "mixture": "a mixture of many simple profiles, fitted to the noisy tables",
        "factor": "a low-rank Gaussian copula over whole attributes, fitted to the noisy tables",
    }.get(str(model.settings.get("kind")), "independent attributes, because the noisy tables support no dependence")


def _released(model: Model, size: str, file_name: str) -> Section:
    schema, m = model.schema, model.measured_schema.n_attributes
    pairs = f" and one for each of the {m * (m - 1) // 2:,} pairs of attributes" if m > 1 else ""
    return Section(
        anchor="released",
        title="What was released",
        body=paragraph(
            f"The confidential table has {size} rows. From it, and only once, tables of counts were taken: one "
            f"for each of its {m:,} attributes{_measured_only(model)}{pairs}. Random noise was added to every single "
            "count before anything left the custodian's machine."
        )
        + paragraph(
            f"Everything else was made from those noisy counts: a statistical model ({_kind(model)}), and synthetic "
            "records drawn from it. No synthetic record was copied from a real one; each was invented by the "
            "model, and a "
            "likeness to a real person is by chance."
        )
        + page.items(
            [
                f"<b>The model file</b> (<code>{text(short(file_name, 60))}</code>): the noisy tables, the model and a "
                "privacy certificate.",
                "<b>Synthetic records</b>: any number can be drawn from the model, at no further cost in privacy.",
                f"<b>This report</b>, made from the model file. The table has {schema.n_levels:,} levels (categories "
                "or bins) in all.",
            ]
        ),
    )


def _measured_only(model: Model) -> str:
    """What the counted attributes are, where rules leave some out."""
    return " that others do not determine" if model.schema.determined else ""


def _promise(model: Model) -> Section:
    certificate = model.certificate
    epsilon, delta = certificate.spent_epsilon, certificate.delta
    odds = math.exp(min(epsilon, 700.0))
    high = odds / (1 + odds)
    replaced = certificate.neighbors == "replace-one"
    whose = "the content of any one row" if replaced else "the presence of any one row"
    instead = "had held any other values in your place" if replaced else "had not held you at all"
    public = ["the schema: names of attributes, their categories and bins", "the settings of the release"]
    if model.schema.rules:
        public[0] += ", rules between them"
    if replaced:
        public.append("the number of rows")
    factor = f"{odds:.3g}" if odds < 1e6 else f"e^{epsilon:.3g}"
    strength = (
        "This is a strong guarantee."
        if epsilon <= 1
        else "This is a moderate guarantee, in the range that statistical agencies use in practice."
        if epsilon <= 5
        else "This is a weak guarantee: the mathematics alone limits little at this ε."
    )
    return Section(
        anchor="privacy",
        title="The privacy promise, in plain words",
        body=_claimed(certificate)
        + paragraph(
            "Suppose you are in the table.",
            "<b>Whatever anyone sees in this release, they would have seen with almost the same probability if "
            "the table "
            f"{instead}.</b>",
            "That holds whoever looks, whatever else they know, and whatever computers they have, now or later.",
        )
        + '<div class="note">'
        + paragraph(
            f"<b>How much is “almost”?</b> No outcome is more than {factor} times as likely with your true data as "
            f"without it (ε = {epsilon:.3g}). For example: someone who, before looking, gives a claim about your "
            "row an "
            f"even chance can end up at most {100 * high:.3g}% sure of it, and no less than {100 * (1 - high):.2g}%.",
            strength,
        )
        + paragraph(f"The bound may fail with a chance of at most {text(_one_in(delta))} (δ = {delta:.2g}).")
        + "</div>\n"
        + "<h3>What the promise does not say</h3>\n"
        + page.items(
            [
                f"It protects {whose}. A person with several rows is protected less: the bound grows with their "
                "number.",
                "It does not hide facts about people in general. If the table shows that smokers fall ill, the release "
                "shows it too, and one may conclude it of a smoker who is not in the table.",
                f"These were treated as public and are not protected: {'; '.join(public)}.",
                "Other releases from the same table add up with this one; the custodian keeps the account.",
            ]
        ),
    )


def _claimed(certificate: Certificate) -> str:
    """A warning where the tables were measured by somebody else."""
    if certificate.claimed_by is None:
        return ""
    rounded = " Their values were rounded to whole counts." if certificate.rounded else ""
    return (
        '<div class="note">'
        + paragraph(
            "<b>Claimed by the caller, not checked.</b> The noisy tables were not measured by Sklar but by "
            f"“{text(certificate.claimed_by)}”. What this page says of noise and privacy is what the caller "
            f"states.{rounded}"
        )
        + "</div>\n"
    )


def _budget(model: Model) -> Section:
    certificate = model.certificate
    power = 2.0 if certificate.mechanism == "gaussian" else 1.0
    costs = [(entry, entry.tables * entry.scale**-power) for entry in certificate.measurements]
    whole = sum(cost for _, cost in costs)
    rows = []
    for (stage, order), group in groupby(costs, key=lambda pair: (pair[0].stage, pair[0].order)):
        entries = list(group)
        scales = sorted(entry.scale for entry, _ in entries)
        noise = f"{scales[0]:,.1f}" if scales[0] == scales[-1] else f"{scales[0]:,.1f} to {scales[-1]:,.1f}"
        tables = sum(entry.tables for entry, _ in entries) if order else 1
        rows.append(
            [stage, entries[0][0].what, f"{tables:,}", noise, f"{sum(cost for _, cost in entries) / whole:.0%}"]
        )
    word = "standard deviation" if certificate.mechanism == "gaussian" else "scale b"
    stages = len({row[0] for row in rows})
    later = (
        "The first stage measured every table. The second measured the pairs again, more precisely where the "
        "<em>noisy</em> tables of the first showed dependence; its total cost was fixed before the first began."
    )
    return Section(
        anchor="budget",
        title="Where the privacy budget went",
        body=paragraph(
            f"A total of ε = {certificate.epsilon:.4g} was allowed and ε = {certificate.spent_epsilon:.4g} "
            f"{'was' if certificate.claimed_by is None else 'is said to have been'} spent, at δ = "
            f"{certificate.delta:.3g}.",
            later if stages > 1 and certificate.claimed_by is None else "",
        )
        + page.table(
            ["Stage", "What was measured", "Tables", f"Noise on a count ({word})", "Share of the cost"],
            rows,
            caption="Measurements and their cost",
            numeric=(2, 3, 4),
        )
        + paragraph(
            f"Noise: {'exact discrete ' if certificate.claimed_by is None else 'claimed to be '}"
            f"{'Gaussian' if power == 2 else 'Laplace'}. Composition: "
            f"{text(certificate.composition)}. "
            f"Neighboring tables: {text(certificate.neighbors)}. The certificate in the model file lists every "
            "scale, so "
            "that anyone can recompute the sum."
        ),
    )


def _domain(attribute: Attribute) -> str:
    levels = attribute.levels
    listed = ", ".join(short(level, 24) for level in (levels if len(levels) <= 7 else (*levels[:4], "…", *levels[-2:])))
    return listed + (f" (missing: {attribute.missing or 'empty'})" if attribute.missing is not None else "")


def _schema(model: Model) -> Section:
    schema = model.schema
    shown = schema.attributes[:MAX_SCHEMA_ROWS]
    table = page.table(
        ["Attribute", "Type", "Levels", "Domain"],
        [[short(each.name, 60), each.kind, f"{each.n_levels:,}", _domain(each)] for each in shown],
        caption=f"The first {len(shown)} of {schema.n_attributes:,} attributes"
        if len(shown) < schema.n_attributes
        else f"All {schema.n_attributes:,} attributes",
        numeric=(2,),
    )
    kinds = Counter(each.kind for each in schema.attributes)
    return Section(
        anchor="schema",
        title="What the table describes",
        body=paragraph(
            "The schema was written from public knowledge, not from the records. Numbers and dates were grouped into "
            "bins before counting.",
            "Types: " + ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items())) + ".",
        )
        + (page.fold(f"Show {len(shown)} attributes", table) if len(shown) > 30 else table)
        + _rules(schema),
    )


def _rules(schema: Schema) -> str:
    if not schema.rules:
        return ""
    told = [f"{text(short(rule_text(rule, schema.attributes), 200))}." for rule in schema.rules[:MAX_LISTED]]
    if len(schema.rules) > MAX_LISTED:
        told.append(f"And {len(schema.rules) - MAX_LISTED:,} more, all in the model file.")
    return (
        "<h3>Rules that every synthetic record honors</h3>\n"
        + paragraph(
            "These are public knowledge, stated before the release, and cost no privacy. An attribute that another "
            "determines was not measured: its values follow from the other one, also where a confidential record said "
            "otherwise."
        )
        + page.items(told)
    )


def _margins(found: _Findings) -> Section:
    model = found.model
    schema, m = model.measured_schema, model.measured_schema.n_attributes
    chosen = list(range(m)) if m <= MAX_CHARTS else _leading(found, MAX_CHARTS)
    charts = []
    for i in chosen:
        attribute = schema.attributes[i]
        estimate = model.estimate(attribute.name)
        start = int(schema.offsets[i])
        n, counts = model.n_rows, estimate.counts
        order = list(range(counts.size))
        if counts.size > MAX_BARS:
            order = sorted(sorted(order, key=lambda k: (-counts[k], k))[:MANY_BARS])
        entries = [
            svg.Bar(
                label=attribute.levels[k],
                value=float(counts[k] / n),
                low=float(estimate.low[k] / n),
                high=float(estimate.high[k] / n),
                mark=float(found.margins[start + k]),
            )
            for k in order
        ]
        left_out = counts.size - len(order)
        note = f" {left_out:,} smaller levels not shown" if left_out else ""
        widest = max(entries, key=lambda entry: entry.value)
        drawing = svg.bars(
            entries,
            title=f"Shares of the levels of {short(attribute.name, 60)}",
            description=f"The largest is {short(widest.label, 40)} with {svg.percent(widest.value)}, 95% interval "
            f"{svg.percent(max(widest.low, 0.0))} to {svg.percent(widest.high)}; synthetic rows have "
            f"{svg.percent(widest.mark)}.",
        )
        charts.append(page.figure(drawing, f'<b class="break">{text(short(attribute.name, 60))}</b>{note}'))
    key = (
        '<ul class="key">\n'
        f"<li>{svg.key('bar')}noisy estimate</li>\n<li>{svg.key('whisker')}95% interval</li>\n"
        f"<li>{svg.key('tick')}synthetic rows</li>\n</ul>\n"
    )
    scope = (
        f"Shown are the {len(chosen)} of {m:,} attributes that take part in the strongest dependences; "
        "<code>sklar query</code> answers for all others."
        if len(chosen) < m
        else ""
    )
    return Section(
        anchor="margins",
        title="One attribute at a time",
        body=paragraph(
            "Each bar is the share of rows with that value as the noisy counts show it. The whisker is its 95% "
            "interval: "
            "it accounts for all noise that was added for privacy. The orange tick is the share among synthetic rows.",
            scope,
        )
        + key
        + f'<div class="charts">\n{"".join(charts)}</div>\n',
    )


def _leading(found: _Findings, wanted: int) -> list[int]:
    """The attributes of the strongest dependences, in the order of the schema."""
    chosen: list[int] = []
    for index in np.argsort(-found.dependence, kind="stable"):
        for i in (int(found.first[index]), int(found.second[index])):
            if i not in chosen and len(chosen) < wanted:
                chosen.append(i)
        if len(chosen) == wanted:
            break
    return sorted(chosen)


def _dependence(found: _Findings) -> Section:
    schema, m = found.model.measured_schema, found.model.measured_schema.n_attributes
    square = np.zeros((m, m))
    square[found.first, found.second] = found.dependence
    square += square.T
    order = [int(index) for index in np.argsort(-found.dependence, kind="stable")[:MAX_LISTED]]
    order = [index for index in order if found.dependence[index] > 0]
    strongest = f"The strongest is {found.pair(order[0])}." if order else "No pair shows any dependence."
    labels: list[str] = list(schema.names)
    how = ""
    if m > MAX_MAP:
        groups = np.array_split(np.arange(m), MAX_MAP)
        starts = np.array([group[0] for group in groups])
        square = np.maximum.reduceat(np.maximum.reduceat(square, starts, axis=0), starts, axis=1)
        labels = [f"{group[0] + 1} to {group[-1] + 1}" for group in groups]
        how = (
            f"The {m:,} attributes are drawn in {MAX_MAP} groups of neighbors, by their number in the schema; a "
            "cell shows "
            "the strongest dependence between two groups, and the diagonal is left empty."
        )
    drawing, width = svg.heat_map(
        square,
        labels,
        title="Dependence between attributes, corrected for noise",
        description=f"Cells are darker where two attributes depend more. {short(strongest, 160)} The table below "
        "lists the "
        "strongest.",
    )
    none = int(np.count_nonzero(found.dependence < _NO_DEPENDENCE))
    return Section(
        anchor="dependence",
        title="How attributes depend on each other",
        body=paragraph(
            "Each cell compares a pair of attributes with what independence would give: the percentage of rows "
            "that would "
            "have to change their values for the two to become independent. Noise alone would make every pair look "
            "dependent; its expected part was removed first.",
            how,
        )
        + page.scrolling(drawing, "Heat map of dependence; scroll sideways on small screens", width=min(width, 700))
        + (
            page.table(
                ["Pair", "Dependence (% of rows)", "Error of one count"],
                [
                    [
                        short(found.pair(index), 90),
                        f"{100 * found.dependence[index]:.1f}",
                        f"± {found.pair_sd[index]:,.0f}",
                    ]
                    for index in order
                ],
                caption="The strongest dependences",
                numeric=(1, 2),
            )
            if order
            else ""
        )
        + paragraph(
            f"{none:,} of {found.dependence.size:,} pairs show no dependence worth mention (below "
            f"{_NO_DEPENDENCE:.1%} of rows). That does not prove that there is none: a weak one may be hidden by "
            "the noise."
        ),
    )


def _fit(found: _Findings) -> Section:
    ratios = found.ratios
    edges = (0.0, *_RATIOS, math.inf)
    counts = [int(np.count_nonzero((ratios >= low) & (ratios < high))) for low, high in pairwise(edges)]
    labels = [
        f"< {_RATIOS[0]:g}",
        *(f"{low:g}\N{EN DASH}{high:g}" for low, high in pairwise(_RATIOS)),
        "≥ 4",
    ]
    near = float(np.mean(ratios < 1.25))
    worst = [int(index) for index in np.argsort(-ratios, kind="stable")[:MAX_LISTED] if ratios[index] >= 1.25]
    drawing = svg.histogram(
        counts,
        labels,
        title="How far the synthetic rows are from the noisy tables, by pair",
        description=f"{100 * near:.0f}% of the pairs are within 1.25 times what noise alone makes.",
    )
    verdict = (
        f"{100 * near:.0f}% of the {ratios.size:,} pairs are matched as well as noise allows or nearly so (a ratio "
        "below 1.25)."
    )
    return Section(
        anchor="match",
        title="How well the synthetic rows match",
        body=paragraph(
            "For each pair of attributes, the squared differences between the model behind the synthetic rows and the "
            "noisy table are divided by what the noise alone is expected to make. Near 1, nothing more "
            "could be learnt from that table; far above 1, the synthetic rows miss something in it, and the "
            "noisy table "
            "should be preferred.",
            verdict,
        )
        + page.scrolling(drawing, "Histogram of the ratio; scroll sideways on small screens", width=560)
        + (
            page.fold(
                f"The {len(worst)} pairs that are matched worst",
                page.table(
                    ["Pair", "Ratio to noise"],
                    [[short(found.pair(index), 90), f"{ratios[index]:.2f}"] for index in worst],
                    caption="Prefer the noisy table of these pairs",
                    numeric=(1,),
                ),
            )
            if worst
            else ""
        ),
    )


def _noise(found: _Findings) -> Section:
    ratio = found.pair_sd / found.expected
    noisy = [int(index) for index in np.argsort(-ratio, kind="stable") if ratio[index] > 1]
    if not noisy:
        said = paragraph(
            "In none of the two-way tables does an average cell hold fewer rows than the error of its count."
        )
    else:
        said = paragraph(
            f"In {len(noisy):,} of {ratio.size:,} two-way tables an average cell holds fewer rows than the error "
            "of its "
            "count. Single cells of these tables mean little; use their large cells, or sums over many."
        ) + page.table(
            ["Pair", "Cells", "Rows in an average cell", "Error of one count"],
            [
                [
                    short(found.pair(index), 90),
                    f"{found.cells[index]:,}",
                    f"{found.expected[index]:,.1f}",
                    f"± {found.pair_sd[index]:,.0f}",
                ]
                for index in noisy[:MAX_LISTED]
            ],
            caption="Mostly noise" + (f": the first {MAX_LISTED}" if len(noisy) > MAX_LISTED else ""),
            numeric=(1, 2, 3),
        )
    small = 2 * _rms(found.pair_sd) / found.model.n_rows
    return Section(
        anchor="noise",
        title="Which tables are mostly noise",
        body=said
        + paragraph(
            f"As a rule, a paired count below about {2 * _rms(found.pair_sd):,.0f} rows ({svg.percent(small)} of "
            "all) cannot "
            "be told from zero."
        ),
    )


def _usage(model: Model, file_name: str) -> Section:
    schema = model.schema
    name = short(file_name, 60)
    first = schema.attributes[0]
    last = schema.attributes[-1]
    asked = " and ".join(
        f"{_quoted(each.name)} = '{each.levels[0].replace(chr(39), chr(39) * 2)}'"
        for each in ([first, last] if schema.n_attributes > 1 else [first])
    )
    pair = f'"{first.name}", "{last.name}"' if schema.n_attributes > 1 else f'"{first.name}"'
    return Section(
        anchor="use",
        title="How to compute with this release",
        body=page.items(
            [
                "<b>For counts over one or two attributes, ask the noisy tables.</b> Their error is known "
                "exactly, and so "
                "is the interval.",
                "<b>For everything else, use synthetic rows.</b> Models, plots, wider tables: they are records "
                "like any "
                "other. Treat what three or more attributes say together as a hypothesis: it was never measured.",
                "<b>Errors of synthetic rows are not those of a sample.</b> Standard formulas see only the sampling of "
                "rows, not the noise. Draw several synthetic tables with different seeds to see the sampling part, and "
                "compare one- and two-way results with the noisy tables to see the rest.",
                "Small counts may come out negative, and tables need not add up exactly: that is the noise, left "
                "in so that "
                "sums and averages stay unbiased.",
            ]
        )
        + page.code(f'sklar query {name} "{asked}"\nsklar sample {name} --rows 10000 --seed 7 --out synthetic.csv')
        + page.code(
            f'import sklar\n\nmodel = sklar.load("{name}")\ntable = model.estimate({pair})\n'
            "table.counts, table.standard_errors, table.low, table.high   # 95% intervals\n"
            "rows = model.sample(10_000, seed=7)"
        ),
    )


def _quoted(name: str) -> str:
    plain = all(letter.isalnum() or letter in "_-." for letter in name)
    return name if plain else '\\"' + name + '\\"'


def _citing(model: Model, file_name: str) -> Section:
    certificate, schema = model.certificate, model.schema
    version = certificate.versions.get("sklar", "")
    return Section(
        anchor="cite",
        title="How to cite and verify it",
        body=paragraph("Suggested citation (add the publisher, the year and where it can be found):")
        + '<div class="note">'
        + paragraph(
            f"“{text(schema.name)}”, differentially private synthetic data, ε = {certificate.spent_epsilon:.4g}, δ = "
            f"{certificate.delta:.3g} ({text(certificate.neighbors)} neighbors). Made with Sklar "
            f"{text(version)}. Schema "
            f"SHA-256 {certificate.schema_sha256[:16]}."
        )
        + "</div>\n"
        + paragraph(
            "Anyone with the model file can recompute the privacy account and make this page again, byte for byte:"
        )
        + page.code(f"sklar verify {short(file_name, 60)}\nsklar report {short(file_name, 60)} --out report.html")
        + page.table(
            ["What", "Value"],
            [
                ["Schema, SHA-256", certificate.schema_sha256],
                *([["Measured by (not checked)", certificate.claimed_by]] if certificate.claimed_by else []),
                ["Mechanism", f"discrete {certificate.mechanism}" if certificate.versions else certificate.mechanism],
                ["Composition", certificate.composition],
                ["Neighbors", certificate.neighbors],
                *([f"Version of {name}", number] for name, number in sorted(certificate.versions.items())),
            ],
            caption="What was run",
        )
        + paragraph(
            "The method starts from H. J. Asghar, M. Ding, T. Rakotoarivelo, S. Mrabet and M. A. Kaafar, "
            "<em>Differentially Private Release of High-Dimensional Datasets using the Gaussian Copula</em>, "
            "Journal of "
            "Privacy and Confidentiality 10(2), 2020."
        ),
    )
