"""The custodian's own report: it compares a release with the real rows, in one HTML file that says PRIVATE everywhere.

This module decides what is shown; `templates/private.html.j2` has the words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sklar.answer.report import svg
from sklar.answer.report.render import Rows, render, short
from sklar.custodian.evaluate import charts
from sklar.custodian.evaluate.compare import NOTICE, Evaluation
from sklar.custodian.evaluate.errors import PERCENTS
from sklar.custodian.evaluate.numbers import PERCENTILES, Correlations, Moments, Share, text, width_text
from sklar.custodian.evaluate.queries import Answers, Triples, answer
from sklar.custodian.evaluate.verdict import THRESHOLDS, Column
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Attribute, Schema
from sklar.public.shown import shown_levels, shown_name
from sklar.rows.read import as_released

MARK = "PRIVATE"
MAX_ATTRIBUTES = 300
MAX_PAIRS = 100
WORST_PAIRS = 3
_SIDE = 12
MAX_SHARES = 200
_MAX_MAP = 16
_MOST_GAPS = 20

# These values have no repr: a traceback or a debugger's log must not print counts.


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SideBySide:
    """One pair of attributes, as maps of the real and of the synthetic counts: (caption, label, drawing, width).

    `shown` says how many levels of both attributes the maps show; None when they show all.
    """

    name: str
    error: float
    shown: tuple[int, int] | None
    maps: tuple[tuple[str, str, Markup, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pairs:
    """What the report shows about pairs of attributes: the errors of all of them in short, and the worst at length."""

    number: int
    median: float
    largest: float
    rows: Rows
    worst: tuple[SideBySide, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Raw:
    """What the report shows about raw values: tables of texts, the worst column first, and maps of correlations."""

    numbers: Rows
    percentiles: tuple[str, ...]
    quantiles: Rows
    heaps: Rows
    rounding: Rows
    absent: Rows
    correlations: Rows
    sampled: int
    maps: tuple[tuple[str, str, Markup, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """All that the report shows. With only one attribute, `pairs` is None; without raw values, `raw` is."""

    banner: str
    evaluation: Evaluation
    thresholds: dict[str, float]
    warnings: Rows
    charts: tuple[charts.Chart, ...]
    raw: Raw | None
    best: tuple[str, ...]
    classes: Rows
    panels: tuple[tuple[str, Markup], ...]
    n_attributes: int
    attributes: Rows
    pairs: Pairs | None
    scores: Rows


def custodian_report(
    evaluation: Evaluation, real: object, synthetic: object, schema: Schema, *, progress: Progress = SILENT
) -> str:
    """Report on an evaluation of these two tables. Both are read once more, for their one- and two-way counts."""
    nothing = Triples(
        schema=schema,
        listed=np.zeros((0, 3), dtype=np.int64),
        bases=np.zeros((schema.n_attributes, schema.n_attributes), dtype=np.int64),
        in_all=0,
    )
    progress.stage("report: real rows", unit="rows")
    true = answer(real, schema, nothing, progress=progress)
    progress.stage("report: synthetic rows", unit="rows")
    given = answer(as_released(synthetic, schema), schema, nothing, progress=progress)
    progress.stage("report: page")
    shown = view(evaluation, true, given)
    return render("sklar.custodian.evaluate", "private.html.j2", shown)


def view(evaluation: Evaluation, true: Answers, given: Answers) -> Comparison:
    """What the report shows. Given counts are scaled to the number of real rows."""
    factor, m = true.n_rows / given.n_rows, true.schema.n_attributes
    given = replace(given, one_way=given.one_way * factor, pairs=given.pairs * factor)
    return Comparison(
        banner=NOTICE,
        evaluation=evaluation,
        thresholds=THRESHOLDS,
        warnings=tuple(
            (short(shown_name(each.attribute), 60), "; ".join(each.warnings))
            for each in _ranked(evaluation)
            if each.warnings
        ),
        charts=_charts(evaluation, true, given),
        raw=_raw(evaluation) if evaluation.looked is not None else None,
        best=tuple(f"Best {percent}%" for percent in PERCENTS),
        classes=_classes(evaluation),
        panels=_panels(evaluation),
        n_attributes=m,
        attributes=_attributes(true, given),
        pairs=_pairs(true, given) if m > 1 else None,
        scores=tuple(
            (score.trained_on, score.learner, f"{score.rows:,}", f"{score.accuracy:.3f}", f"{score.auc:.3f}")
            for score in evaluation.scores
        ),
    )


def _ranked(evaluation: Evaluation) -> list[Column]:
    """The columns, the worst first."""
    return sorted(evaluation.columns, key=lambda column: -column.distance)


def _charts(evaluation: Evaluation, true: Answers, given: Answers) -> tuple[charts.Chart, ...]:
    """A chart for every column, the worst first. Where numbers were not seen, a column's levels are drawn."""
    offsets, names = true.schema.offsets, true.schema.names
    drawn = []
    for column in _ranked(evaluation)[: charts.MAX_CHARTS]:
        i = names.index(column.name)
        seen = [looked.columns[i].numbers for looked in evaluation.looked or ()]
        if len(seen) > 1 and seen[0] is not None and seen[1] is not None:
            rows = evaluation.real_rows, evaluation.synthetic_rows
            drawn.append(charts.draw_numbers(column, seen[0], seen[1], rows))
        else:
            real, other = (each.one_way[offsets[i] : offsets[i + 1]] / true.n_rows for each in (true, given))
            drawn.append(charts.draw_category(column, real, other))
    return tuple(drawn)


def _raw(evaluation: Evaluation) -> Raw:
    ranked = _ranked(evaluation)
    scored = [(column, column.numbers) for column in ranked if column.numbers is not None]
    rows, quantiles, heaps, rounding = [], [], [], []
    for column, found in scored[:MAX_ATTRIBUTES]:
        name, attribute, real, other = (
            short(shown_name(column.attribute), 60),
            column.attribute,
            found.real,
            found.synthetic,
        )
        rows.append(
            (
                name,
                f"{found.ks:.3f}" + (f" \N{PLUS-MINUS SIGN} {found.ks_error:.1g}" if found.ks_error else ""),
                "" if found.wasserstein is None else f"{found.wasserstein:.3f}",
                text(attribute, real.mean),
                text(attribute, other.mean),
                width_text(attribute, real.sd),
                width_text(attribute, other.sd),
            )
        )
        quantiles += [_quantiles(name, "real", attribute, real), _quantiles("", "synthetic", attribute, other)]
        heaps += [_shares(name, heap) for heap in found.heaps]
        rounding += [_shares(name, share) for share in found.rounding]
    absent = [
        _shares(short(shown_name(column.attribute), 60), share)
        for column in ranked
        for share in (*([column.missing] if column.missing is not None else []), *column.texts)
        if max(share.real, share.synthetic) > 0
    ]
    correlations = evaluation.correlations
    return Raw(
        numbers=tuple(rows),
        percentiles=tuple(f"{at}%" for at in PERCENTILES),
        quantiles=tuple(quantiles),
        heaps=tuple(heaps[:MAX_SHARES]),
        rounding=tuple(rounding[:MAX_SHARES]),
        absent=tuple(absent[:MAX_SHARES]),
        correlations=() if correlations is None else _correlated(correlations),
        sampled=0 if correlations is None else min(correlations.sampled),
        maps=() if correlations is None else _correlation_maps(correlations),
    )


def _quantiles(name: str, table: str, attribute: Attribute, moments: Moments) -> tuple[str, ...]:
    return (name, table, *(text(attribute, value) for value in moments.quantiles))


def _shares(name: str, share: Share) -> tuple[str, ...]:
    return (name, short(share.what, 40), f"{share.real:.1%}", f"{share.synthetic:.1%}")


def _correlated(correlations: Correlations) -> Rows:
    rows = []
    for _, i, j in correlations.gaps()[:_MOST_GAPS]:
        matrices = (*correlations.pearson, *correlations.spearman)
        name = short(f"{correlations.names[i]} \N{MULTIPLICATION SIGN} {correlations.names[j]}", 80)
        rows.append((name, *(_written(float(matrix[i, j])) for matrix in matrices)))
    return tuple(rows)


def _correlation_maps(correlations: Correlations) -> tuple[tuple[str, str, Markup, int], ...]:
    """Spearman's correlations of the columns with the largest differences, in the order of the schema."""
    order = dict.fromkeys(index for _, *pair in correlations.gaps() for index in pair)
    kept = np.array(sorted(list(order)[:_MAX_MAP]), dtype=np.int64)
    if kept.size < 2:
        return ()
    maps = []
    for label, matrix in zip(("Real rows", "Synthetic rows"), correlations.spearman, strict=True):
        part = matrix[np.ix_(kept, kept)]
        title = f"{label}: Spearman's correlations"
        drawing, width = svg.heat_map(
            np.nan_to_num(np.abs(part)),
            [correlations.names[index] for index in kept],
            written=[[_written(float(value)) for value in row] for row in part],
            top=1.0,
            title=title,
            description="Darker cells are stronger correlations, of either sign.",
        )
        maps.append((label, title, drawing, width * 3 // 4))
    return tuple(maps)


def _written(correlation: float) -> str:
    return "" if np.isnan(correlation) else f"{correlation:.2f}"


def _classes(evaluation: Evaluation) -> Rows:
    rows = []
    for result in evaluation.results:
        best = [result.errors.best(percent) for percent in PERCENTS]
        errors = [f"{each.average:,.1f} / {each.maximum:,.0f}" for each in best]
        rows.append((result.name, f"{result.errors.size:,}", *errors, "" if result.tv is None else f"{result.tv:.4f}"))
    return tuple(rows)


def _panels(evaluation: Evaluation) -> tuple[tuple[str, Markup], ...]:
    asked = [result for result in evaluation.results if result.errors.size]
    chosen = {
        "All classes of queries": [result for result in asked if "|r|" not in result.name],
        "Two-way, by correlation": [result for result in asked if result.name.startswith("two-way")],
    }
    panels = []
    for title, results in chosen.items():
        lines = [svg.Line(label=each.name, x=x, y=y) for each in results for x, y in [each.errors.cdf()]]
        within = [f"{each.name}: 95% within {each.errors.best(95).maximum:,.0f} rows" for each in results]
        heading = f"Cumulative shares of absolute errors: {title}"
        if results:
            panels.append((title, svg.cdfs(lines, title=heading, description="; ".join(within))))
    return tuple(panels)


def _attributes(true: Answers, given: Answers) -> Rows:
    """Attributes with their total variation and their worst level, the worst first."""
    offsets = true.schema.offsets
    errors = np.abs(true.one_way - given.one_way)
    totals = np.add.reduceat(errors, offsets[:-1]) / (2 * true.n_rows)
    rows = []
    for i in np.argsort(-totals, kind="stable")[:MAX_ATTRIBUTES]:
        attribute = true.schema.attributes[i]
        worst = int(errors[offsets[i] : offsets[i + 1]].argmax())
        real, other = (answers.one_way[offsets[i] + worst] for answers in (true, given))
        rows.append(
            (
                short(shown_name(attribute), 60),
                f"{attribute.n_levels:,}",
                f"{totals[i]:.4f}",
                short(shown_levels(attribute)[worst], 60),
                f"{real:,.0f}",
                f"{other:,.0f}",
            )
        )
    return tuple(rows)


def _pairs(true: Answers, given: Answers) -> Pairs:
    schema, starts = true.schema, true.schema.offsets[:-1]
    first, second = np.triu_indices(schema.n_attributes, 1)
    distances = np.add.reduceat(np.add.reduceat(np.abs(true.pairs - given.pairs), starts, axis=0), starts, axis=1)
    errors = distances[first, second] / (2 * true.n_rows)
    order = [(int(first[k]), int(second[k]), float(errors[k])) for k in np.argsort(-errors, kind="stable")[:MAX_PAIRS]]
    return Pairs(
        number=errors.size,
        median=float(np.median(errors)),
        largest=float(errors.max()),
        rows=tuple(_pair_row(true, given, *pair) for pair in order),
        worst=tuple(_side_by_side(true, given, *pair) for pair in order[:WORST_PAIRS]),
    )


def _block(answers: Answers, i: int, j: int) -> NDArray[Any]:
    """The two-way table of two attributes."""
    offsets = answers.schema.offsets
    return np.asarray(answers.pairs[offsets[i] : offsets[i + 1], offsets[j] : offsets[j + 1]])


def _pair_name(one: Attribute, two: Attribute) -> str:
    return short(f"{shown_name(one)} \N{MULTIPLICATION SIGN} {shown_name(two)}", 100)


def _pair_row(true: Answers, given: Answers, i: int, j: int, error: float) -> tuple[str, ...]:
    one, two = true.schema.attributes[i], true.schema.attributes[j]
    real, other = _block(true, i, j), _block(given, i, j)
    at = np.unravel_index(np.abs(real - other).argmax(), real.shape)
    return (
        _pair_name(one, two),
        f"{real.size:,}",
        f"{error:.4f}",
        short(f"{shown_levels(one)[at[0]]}, {shown_levels(two)[at[1]]}", 100),
        f"{real[at]:,.0f}",
        f"{other[at]:,.0f}",
    )


def _side_by_side(true: Answers, given: Answers, i: int, j: int, error: float) -> SideBySide:
    one, two = true.schema.attributes[i], true.schema.attributes[j]
    real, other = _block(true, i, j), _block(given, i, j)
    # We show the levels with the largest errors, in the order of the schema.
    gap = np.abs(real - other)
    rows, columns = (np.sort(np.argsort(-gap.sum(axis=axis), kind="stable")[:_SIDE]) for axis in (1, 0))
    names = f"{short(shown_name(one), 40)} by {short(shown_name(two), 40)}"
    maps = []
    for label, counts in (("Real rows", real), ("Synthetic rows", other)):
        part = counts[np.ix_(rows, columns)]
        drawing, width = svg.heat_map(
            part,
            [shown_levels(one)[k] for k in rows],
            columns=[shown_levels(two)[k] for k in columns],
            written=[[f"{cell:,.0f}" if cell < 9999.5 else f"{cell / 1000:,.0f}k" for cell in row] for row in part],
            top=float(max(real.max(), other.max(), 1.0)),
            title=f"{label}: counts of {names}",
            description=f"Darker cells hold more rows; the largest holds {part.max(initial=0.0):,.0f}.",
        )
        maps.append((label, f"{label}: {names}", drawing, width * 3 // 4))
    return SideBySide(
        name=_pair_name(one, two),
        error=error,
        shown=(rows.size, columns.size) if rows.size * columns.size < real.size else None,
        maps=tuple(maps),
    )
