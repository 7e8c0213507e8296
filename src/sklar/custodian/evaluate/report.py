"""The custodian's own report: a release against the real rows, as one HTML file. Private, and says so everywhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.answer.report import page, svg
from sklar.answer.report.page import Section, paragraph, short
from sklar.custodian.evaluate.compare import NOTICE, Evaluation
from sklar.custodian.evaluate.errors import PERCENTS
from sklar.custodian.evaluate.queries import Answers, Triples, answer
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Schema

MARK = "PRIVATE"
MAX_ATTRIBUTES = 300
MAX_PAIRS = 100
WORST_PAIRS = 3
_SIDE = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tables:
    """Exact counts of both tables, the synthetic ones scaled to the number of real rows."""

    schema: Schema
    n_rows: int
    real_one: NDArray[np.float64]
    real_pairs: NDArray[np.float64]
    other_one: NDArray[np.float64]
    other_pairs: NDArray[np.float64]

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print counts.
        return "_Tables(private)"


def custodian_report(
    evaluation: Evaluation, real: object, synthetic: object, schema: Schema, *, progress: Progress = SILENT
) -> str:
    """The report on an evaluation of these two tables, which are read once more for their one- and two-way counts."""
    nothing = Triples(
        schema=schema,
        listed=np.zeros((0, 3), dtype=np.int64),
        bases=np.zeros((schema.n_attributes, schema.n_attributes), dtype=np.int64),
        in_all=0,
    )
    progress.stage("report")
    return render(evaluation, answer(real, schema, nothing), answer(synthetic, schema, nothing))


def render(evaluation: Evaluation, true: Answers, given: Answers) -> str:
    """The report as one HTML document."""
    factor = true.n_rows / given.n_rows
    tables = _Tables(
        schema=true.schema,
        n_rows=true.n_rows,
        real_one=true.one_way.astype(np.float64),
        real_pairs=true.pairs.astype(np.float64),
        other_one=given.one_way * factor,
        other_pairs=given.pairs * factor,
    )
    pairs = _pair_errors(tables)
    one, two = evaluation.result("one-way"), evaluation.result("two-way")
    opening = page.facts(
        [
            ("Real rows", f"{evaluation.real_rows:,}"),
            (f"Synthetic {evaluation.form or 'rows'}", f"{evaluation.synthetic_rows:,}"),
            ("One-way, mean distance", _share(one.tv)),
            ("Two-way, mean distance", _share(two.tv)),
            *(
                [("Valid records", f"{evaluation.valid_share:.1%}")]
                if evaluation.valid_share is not None and evaluation.form == "dummies"
                else []
            ),
        ]
    )
    sections = [
        _summary(evaluation),
        _cdfs(evaluation),
        _attributes(tables),
        *([_pairs(tables, pairs), _worst(tables, pairs)] if pairs.size else []),
        *([_learning(evaluation)] if evaluation.scores else []),
    ]
    return page.page(
        title=f"{MARK} {evaluation.table}: release against the real rows",
        kicker="For the custodian · not for publication",
        heading=f"“{evaluation.table}”: the release against the real rows",
        lead="Exact comparisons with the confidential table. They carry no noise and no privacy guarantee.",
        opening=opening,
        sections=sections,
        foot=paragraph(page.text(NOTICE)),
        banner=NOTICE,
    )


def _share(value: float | None) -> str:
    return "none" if value is None else svg.percent(value)


def _summary(evaluation: Evaluation) -> Section:
    rows = []
    for result in evaluation.results:
        best = [result.errors.best(percent) for percent in PERCENTS]
        rows.append(
            [
                result.name,
                f"{result.errors.size:,}",
                *(f"{each.average:,.1f} / {each.maximum:,.0f}" for each in best),
                "" if result.tv is None else f"{result.tv:.4f}",
            ]
        )
    scaled = (
        "Synthetic counts are scaled to the number of real rows."
        if evaluation.synthetic_rows != evaluation.real_rows
        else ""
    )
    return Section(
        anchor="summary",
        title="Errors of counts",
        body=paragraph(
            "Absolute errors in rows, as average / maximum over the best 95%, 99% and all of the queries.",
            f"Three-way queries: {page.text(evaluation.triples)}.",
            scaled,
        )
        + page.table(
            ["Queries", "Number", *(f"Best {percent}%" for percent in PERCENTS), "Mean total variation"],
            rows,
            caption="Absolute error of counts",
            numeric=range(1, 6),
        ),
    )


def _cdfs(evaluation: Evaluation) -> Section:
    def lines(names: list[str]) -> list[svg.Line]:
        chosen = [evaluation.result(name) for name in names]
        return [
            svg.Line(label=result.name, x=result.errors.cdf()[0], y=result.errors.cdf()[1])
            for result in chosen
            if result.errors.size
        ]

    names = [result.name for result in evaluation.results]
    panels = [
        ("All classes of queries", [name for name in names if "|r|" not in name]),
        ("Two-way, by correlation", [name for name in names if name.startswith("two-way")]),
    ]
    drawn = "".join(
        page.figure(
            svg.cdfs(
                lines(chosen),
                title=f"Cumulative shares of absolute errors: {title}",
                description="; ".join(
                    f"{result.name}: 95% within {result.errors.best(95).maximum:,.0f} rows"
                    for result in (evaluation.result(name) for name in chosen)
                    if result.errors.size
                ),
            ),
            f"<b>{page.text(title)}</b>",
        )
        for title, chosen in panels
        if lines(chosen)
    )
    return Section(
        anchor="cdfs",
        title="Distribution of errors",
        body=paragraph("Share of queries whose absolute error is at most so many rows, as in the paper's figures.")
        + f'<div class="pair">\n{drawn}</div>\n',
    )


def _attributes(tables: _Tables) -> Section:
    schema, n = tables.schema, tables.n_rows
    errors = np.abs(tables.real_one - tables.other_one)
    rows = []
    for i, attribute in enumerate(schema.attributes):
        own = slice(int(schema.offsets[i]), int(schema.offsets[i + 1]))
        worst = int(errors[own].argmax())
        rows.append((float(errors[own].sum()) / (2 * n), attribute, worst, own.start + worst))
    rows.sort(key=lambda row: -row[0])
    listed = rows[:MAX_ATTRIBUTES]
    return Section(
        anchor="attributes",
        title="Attribute by attribute",
        body=page.table(
            ["Attribute", "Levels", "Total variation", "Worst level", "Real", "Synthetic"],
            [
                [
                    short(attribute.name, 60),
                    f"{attribute.n_levels:,}",
                    f"{tv:.4f}",
                    short(attribute.levels[worst], 40),
                    f"{tables.real_one[at]:,.0f}",
                    f"{tables.other_one[at]:,.0f}",
                ]
                for tv, attribute, worst, at in listed
            ],
            caption=_cut("Attributes", len(listed), len(rows)),
            numeric=(1, 2, 4, 5),
        ),
    )


def _cut(what: str, shown: int, whole: int) -> str:
    return f"{what}, the worst first" + (f": {shown:,} of {whole:,}" if shown < whole else "")


def _pair_errors(tables: _Tables) -> NDArray[np.float64]:
    """The total variation of every two-way table, in the order (0, 1), (0, 2), ... (1, 2), ..."""
    offsets = tables.schema.offsets[:-1]
    errors = np.abs(tables.real_pairs - tables.other_pairs)
    summed = np.add.reduceat(np.add.reduceat(errors, offsets, axis=0), offsets, axis=1)
    return np.asarray(summed[np.triu_indices(tables.schema.n_attributes, 1)] / (2 * tables.n_rows))


def _pairs(tables: _Tables, errors: NDArray[np.float64]) -> Section:
    first, second = np.triu_indices(tables.schema.n_attributes, 1)
    order = np.argsort(-errors, kind="stable")[:MAX_PAIRS]
    rows = []
    for index in order:
        i, j = int(first[index]), int(second[index])
        real, other = _block(tables, i, j)
        at = np.unravel_index(np.abs(real - other).argmax(), real.shape)
        one, two = tables.schema.attributes[i], tables.schema.attributes[j]
        rows.append(
            [
                short(f"{one.name} \N{MULTIPLICATION SIGN} {two.name}", 80),
                f"{real.size:,}",
                f"{errors[index]:.4f}",
                short(f"{one.levels[at[0]]}, {two.levels[at[1]]}", 50),
                f"{real[at]:,.0f}",
                f"{other[at]:,.0f}",
            ]
        )
    table = page.table(
        ["Pair", "Cells", "Total variation", "Worst cell", "Real", "Synthetic"],
        rows,
        caption=_cut("Pairs", len(rows), errors.size),
        numeric=(1, 2, 4, 5),
    )
    return Section(
        anchor="pairs",
        title="Pair by pair",
        body=paragraph(
            f"Total variation of the {errors.size:,} two-way tables: median {np.median(errors):.4f}, largest "
            f"{errors.max():.4f}."
        )
        + (page.fold(f"Show {len(rows)} pairs", table) if len(rows) > 25 else table),
    )


def _block(tables: _Tables, i: int, j: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    offsets = tables.schema.offsets
    where = slice(int(offsets[i]), int(offsets[i + 1])), slice(int(offsets[j]), int(offsets[j + 1]))
    return tables.real_pairs[where], tables.other_pairs[where]


def _worst(tables: _Tables, errors: NDArray[np.float64]) -> Section:
    first, second = np.triu_indices(tables.schema.n_attributes, 1)
    parts = []
    for index in np.argsort(-errors, kind="stable")[:WORST_PAIRS]:
        i, j = int(first[index]), int(second[index])
        one, two = tables.schema.attributes[i], tables.schema.attributes[j]
        real, other = _block(tables, i, j)
        # The levels with the largest errors, in the order of the schema.
        gap = np.abs(real - other)
        rows, columns = (np.sort(np.argsort(-gap.sum(axis=axis), kind="stable")[:_SIDE]) for axis in (1, 0))
        top = float(max(real.max(), other.max(), 1.0))
        maps = []
        for label, counts in (("Real rows", real), ("Synthetic rows", other)):
            part = counts[np.ix_(rows, columns)]
            drawing, width = svg.heat_map(
                part,
                [one.levels[k] for k in rows],
                columns=[two.levels[k] for k in columns],
                written=[[f"{cell:,.0f}" if cell < 9999.5 else f"{cell / 1000:,.0f}k" for cell in row] for row in part],
                top=top,
                title=f"{label}: counts of {short(one.name, 40)} by {short(two.name, 40)}",
                description=f"Darker cells hold more rows; the largest holds {part.max(initial=0.0):,.0f}.",
            )
            shown = page.scrolling(
                drawing, f"{label}: {short(one.name, 40)} by {short(two.name, 40)}", width=width * 3 // 4
            )
            maps.append(page.figure(shown, f"<b>{label}</b>"))
        cut = f", the {len(rows)} by {len(columns)} levels with the largest errors" if part.size < real.size else ""
        name = short(f"{one.name} \N{MULTIPLICATION SIGN} {two.name}", 80)
        parts.append(
            f"<h3>{page.text(name)}</h3>\n"
            + paragraph(f"Total variation {errors[index]:.4f}{cut}.")
            + f'<div class="pair">\n{"".join(maps)}</div>\n'
        )
    return Section(anchor="worst", title="The worst pairs, side by side", body="".join(parts))


def _learning(evaluation: Evaluation) -> Section:
    scores: list[dict[str, Any]] = [asdict(score) for score in evaluation.scores]
    return Section(
        anchor="learning",
        title="Trained on synthetic rows, tested on real ones",
        body=paragraph(f"Predicting “{page.text(scores[0]['target'])}” on real test rows that neither table holds.")
        + page.table(
            ["Trained on", "Learner", "Rows", "Accuracy", "AUC"],
            [
                [
                    score["trained_on"],
                    score["learner"],
                    f"{score['rows']:,}",
                    f"{score['accuracy']:.3f}",
                    f"{score['auc']:.3f}",
                ]
                for score in scores
            ],
            caption="Scores on real test rows",
            numeric=(2, 3, 4),
        ),
    )
