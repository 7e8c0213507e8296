"""A release against the real rows: every query class, its errors, and a compact table of both."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from sklar.custodian.evaluate.errors import PERCENTS, Errors, absolute_errors
from sklar.custodian.evaluate.look import Look, Looked
from sklar.custodian.evaluate.numbers import (
    Correlations,
    Share,
    brief,
    compare_correlations,
    compare_numbers,
    compare_texts,
    width_text,
)
from sklar.custodian.evaluate.queries import MAX_TRIPLES, Answers, Form, answer, choose_triples, pearson
from sklar.custodian.evaluate.usefulness import Score, usefulness
from sklar.custodian.evaluate.values import is_number
from sklar.custodian.evaluate.verdict import Column, Verdict, judge, warn
from sklar.errors import DataError
from sklar.files.write import check_target, write_text
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Schema, SchemaLike
from sklar.rows.read import as_released

NOTICE = "PRIVATE: computed from the real rows without noise. For the custodian's eyes; do not publish."

# The paper's border between correlated and uncorrelated pairs of dummies.
HIGH_CORRELATION = 0.5

_PICTURES, _PAGES = (".png", ".svg"), (".html",)
_WIDTH = 100
_SHOWN_NUMBERS = 40
_SHOWN_GAPS = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """One class of queries: its name, its errors, and (for whole classes) the mean total variation distance."""

    name: str
    errors: Errors
    tv: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        at, share = self.errors.cdf()
        return {
            "name": self.name,
            "queries": self.errors.size,
            "best": [asdict(self.errors.best(percent)) for percent in PERCENTS],
            "mean_total_variation": self.tv,
            "cdf": {"error": at.round(3).tolist(), "share": share.round(6).tolist()},
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evaluation(Tabular):
    """How near a release comes to the real rows, by classes of queries and column by column. Private, as they are.

    `verdict` is one line over all `columns`. `looked` holds what was seen of the raw values of both tables; it is None,
    and columns have no numbers, where a table holds dummies, and where answers alone were compared.
    """

    table: str
    real_rows: int
    synthetic_rows: int
    form: Form | None
    valid_share: float | None
    triples: str
    results: tuple[Result, ...]
    scores: tuple[Score, ...] = ()
    columns: tuple[Column, ...] = ()
    correlations: Correlations | None = None
    verdict: Verdict | None = None
    looked: tuple[Looked, Looked] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"Evaluation('{self.table}', {self.real_rows:,} real rows, {self.synthetic_rows:,} synthetic; {NOTICE})"

    def _repr_html_(self) -> str:
        return html_card(
            f"Evaluation of '{self.table}'",
            {"rows": f"{self.real_rows:,} real, {self.synthetic_rows:,} synthetic"},
            self.to_columns(),
            note=NOTICE,
        )

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each class of queries: their number, average error, and mean total variation distance."""
        return {
            "queries": [result.name for result in self.results],
            "number": [result.errors.size for result in self.results],
            "average_error": [
                float(result.errors.best(100).average) if result.errors.size else None for result in self.results
            ],
            "mean_total_variation": [result.tv for result in self.results],
        }

    def result(self, name: str) -> Result:
        """The class of that name."""
        return next(result for result in self.results if result.name == name)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "notice": NOTICE,
            "overall": None if self.verdict is None else self.verdict.to_dict(),
            "table": self.table,
            "real_rows": self.real_rows,
            "synthetic_rows": self.synthetic_rows,
            "form": self.form,
            "valid_share": self.valid_share,
            "three_way_queries": self.triples,
            "results": [result.to_dict() for result in self.results],
            "columns": [column.to_dict() for column in self.columns],
            "correlations": None if self.correlations is None else self.correlations.to_dict(),
            "usefulness": [asdict(score) for score in self.scores],
        }

    def lines(self) -> list[str]:
        """A table for a person to read, the notice first."""
        rows = f"{self.table}: {self.real_rows:,} real rows, {self.synthetic_rows:,} synthetic {self.form or 'rows'}"
        if self.valid_share is not None:
            rows += f", {self.valid_share:.1%} of them valid records"
        lines = [NOTICE, "", rows + "."]
        if self.synthetic_rows != self.real_rows:
            lines.append("Synthetic counts are scaled to the number of real rows.")
        if self.verdict is not None:
            lines += ["", *textwrap.wrap(f"Overall. {self.verdict.line}", _WIDTH, subsequent_indent="  ")]
        lines += [
            "",
            f"Three-way queries: {self.triples}.",
            "",
            "Absolute error of counts, average / maximum over the best 95%, 99% and all of the queries:",
            "",
            f"{'queries':<24}{'number':>12}{'95%':>18}{'99%':>18}{'100%':>18}{'mean TV':>10}",
        ]
        for result in self.results:
            best = (result.errors.best(percent) for percent in PERCENTS)
            cells = "".join(f"{f'{each.average:,.1f} / {each.maximum:,.0f}':>18}" for each in best)
            tv = "" if result.tv is None else f"{result.tv:.4f}"
            lines.append(f"{result.name:<24}{result.errors.size:>12,}{cells}{tv:>10}")
        lines += self._number_lines()
        if self.scores:
            lines += ["", f"Predicting '{self.scores[0].target}' on real test rows:", ""]
            lines.append(f"{'trained on':<24}{'learner':<24}{'rows':>10}{'accuracy':>10}{'AUC':>8}")
            lines += [
                f"{score.trained_on:<24}{score.learner:<24}{score.rows:>10,}{score.accuracy:>10.3f}{score.auc:>8.3f}"
                for score in self.scores
            ]
        return [line.rstrip() for line in lines]

    def _number_lines(self) -> list[str]:
        """The raw values of numbers, the worst column first, and every column's warnings."""
        scored = sorted((each for each in self.columns if each.numbers is not None), key=lambda each: -each.distance)
        lines = []
        if self.form == "dummies" and any(column.on_axis for column in self.columns):
            lines += ["", "Raw values of numbers are not compared: dummies have none."]
        if scored:
            lines += ["", "Raw values of numbers. KS: largest difference of the distribution functions, from 0 to 1;"]
            lines += ["distance: Wasserstein distance in real standard deviations; synthetic / real.", ""]
            lines.append(f"{'column':<20}{'KS':>7}{'distance':>9}{'mean':>37} {'standard deviation':>26}")
        for column in scored[:_SHOWN_NUMBERS]:
            numbers, attribute = column.numbers, column.attribute
            if numbers is None:
                continue
            real, other = numbers.real, numbers.synthetic
            moved = "" if numbers.wasserstein is None else f"{numbers.wasserstein:.3f}"
            mean = f"{brief(attribute, other.mean)} / {brief(attribute, real.mean)}"
            spread = f"{width_text(attribute, other.sd)} / {width_text(attribute, real.sd)}"
            lines.append(f"{column.name:<20.19}{numbers.ks:>7.3f}{moved:>9}{mean:>37} {spread:>26}")
        if len(scored) > _SHOWN_NUMBERS:
            lines.append(f"... and {len(scored) - _SHOWN_NUMBERS} more, all of them better (--json has all).")
        warned = [column for column in self.columns if column.warnings]
        if warned:
            lines += ["", "Warnings (synthetic for real):", ""]
            for column in sorted(warned, key=lambda each: -each.distance)[:_SHOWN_NUMBERS]:
                told = f"{column.name}: {'; '.join(column.warnings)}."
                lines += textwrap.wrap(told, _WIDTH, subsequent_indent="  ")
        if self.correlations is not None:
            lines += ["", "Correlations of numbers that differ most (synthetic / real):", ""]
            lines.append(f"{'pair':<52}{'Pearson':>18}{'Spearman':>18}")
            lines += _correlation_lines(self.correlations)
        return lines


def _correlation_lines(correlations: Correlations) -> list[str]:
    lines = []
    for _, one, two in correlations.gaps()[:_SHOWN_GAPS]:
        figures = (
            f"{given[one, two]:.3f} / {true[one, two]:.3f}"
            for true, given in (correlations.pearson, correlations.spearman)
        )
        pair = f"{correlations.names[one]}, {correlations.names[two]}"
        lines.append(f"{pair:<52.51}" + "".join(f"{figure:>18}" for figure in figures))
    return lines


def evaluate(
    real: object,
    synthetic: object,
    schema: SchemaLike,
    *,
    max_triples: int = MAX_TRIPLES,
    target: str | None = None,
    test: object | None = None,
    plot: str | Path | None = None,
    report: str | Path | None = None,
    progress: Progress = SILENT,
) -> Evaluation:
    """Compare a synthetic table with the real one. Private: the result is for the custodian's eyes.

    Each table is a path or anything that exports an Arrow stream, of records or of dummies; `schema` is a schema, the
    path of one, or a model for its schema. With more than `max_triples` three-way queries, a stated random sample is
    asked. With a `target` attribute and a real `test` table learners are trained on both tables too. `plot` (.png,
    .svg) and `report` (.html) are files to write, PRIVATE as well. With a target or a report tables are read twice, so
    that a stream that ends does not do.
    """
    targets = [(check_target(path, ends), path) for path, ends in ((plot, _PICTURES), (report, _PAGES)) if path]
    found = _evaluated(real, synthetic, Schema.of(schema), max_triples, target, test, progress)
    # Imported here: both are made from what this module holds.
    for path, given in targets:
        if given is plot:
            from sklar.custodian.evaluate.plots import plot as draw

            draw(found, path)
        else:
            from sklar.custodian.evaluate.report import custodian_report

            page = custodian_report(found, real, synthetic, Schema.of(schema), progress=progress)
            write_text(path, page, private=True)
    return found


def _evaluated(
    real: object,
    synthetic: object,
    schema: Schema,
    max_triples: int,
    target: str | None,
    test: object | None,
    progress: Progress,
) -> Evaluation:
    if (target is None) != (test is None):
        raise DataError("usefulness needs both a target attribute and a test table of real rows. Give both, or none.")
    if target is not None:
        schema.attribute(target)
    synthetic = as_released(synthetic, schema)
    asked = choose_triples(schema, max_triples=max_triples)
    looks = Look(schema), Look(schema)
    progress.stage("count real rows", unit="rows")
    true = answer(real, schema, asked, progress=progress, look=looks[0])
    progress.stage("count synthetic rows", unit="rows")
    given = answer(synthetic, schema, asked, progress=progress, look=looks[1])
    progress.stage("compare")
    raw = true.form == given.form == "records"
    evaluation = _judged(compare(true, given), (looks[0].done(), looks[1].done()) if raw else None)
    if target is None:
        return evaluation
    progress.stage("learn")
    return replace(evaluation, scores=usefulness(real, synthetic, test, schema, target=target))


def compare(true: Answers, given: Answers) -> Evaluation:
    """Errors of given answers, class by class.

    Q1 asks X_i = 1 only: in a table of n rows X_i = 0 is wrong by as much. The mean total variation distance of order k
    is half the sum of all errors over n and the number of k-way tables; where triples are sampled it is an estimate,
    and for dummies, whose tables need not sum to n, it is the same formula.
    """
    schema, n, m = true.schema, true.n_rows, true.schema.n_attributes
    factor = n / given.n_rows
    high = np.abs(pearson(true)) >= HIGH_CORRELATION
    seen = true.triples > 0

    def tv(errors: Errors, order: int, queries: int) -> float | None:
        tables = comb(m, order)
        return errors.total / max(errors.size, 1) * queries / (2 * n * tables) if tables else None

    one = absolute_errors(true.one_way, given.one_way, factor=factor)
    true_pairs, given_pairs = true.two_way, given.two_way
    two = absolute_errors(true_pairs, given_pairs, factor=factor)
    three = absolute_errors(true.triples, given.triples, factor=factor)
    results = [
        Result(name="one-way", errors=one, tv=tv(one, 1, one.size)),
        Result(name="two-way", errors=two, tv=tv(two, 2, two.size)),
        Result(name="two-way, |r| >= 0.5", errors=absolute_errors(true_pairs, given_pairs, factor=factor, where=high)),
        Result(name="two-way, |r| < 0.5", errors=absolute_errors(true_pairs, given_pairs, factor=factor, where=~high)),
        Result(name="three-way", errors=three, tv=tv(three, 3, true.asked.in_all)),
        Result(
            name="three-way, count > 0",
            errors=absolute_errors(true.triples, given.triples, factor=factor, where=seen),
        ),
    ]
    levels = np.abs(true.one_way - factor * given.one_way)
    distances = np.add.reduceat(levels, schema.offsets[:-1]) / (2 * n)
    return Evaluation(
        table=schema.name,
        real_rows=n,
        synthetic_rows=given.n_rows,
        form=given.form,
        valid_share=None if given.valid_rows is None else given.valid_rows / given.n_rows,
        triples=true.asked.stated,
        results=tuple(results),
        columns=tuple(
            Column(attribute=attribute, on_axis=is_number(attribute), tv=float(tv))
            for attribute, tv in zip(schema.attributes, distances, strict=True)
        ),
    )


def _judged(evaluation: Evaluation, looked: tuple[Looked, Looked] | None) -> Evaluation:
    """The evaluation with what was seen of raw values, warnings and the verdict."""
    columns = list(evaluation.columns)
    if looked is not None:
        real, given = looked
        columns = [
            replace(
                column,
                missing=Share(what="missing", real=one.missing / real.n_rows, synthetic=two.missing / given.n_rows),
                texts=compare_texts(real, given, index),
                numbers=compare_numbers(one, two),
            )
            for index, (column, one, two) in enumerate(zip(columns, real.columns, given.columns, strict=True))
        ]
    judged = tuple(replace(column, warnings=warn(column)) for column in columns)
    correlations = None if looked is None else compare_correlations(*looked)
    rows = evaluation.real_rows, evaluation.synthetic_rows
    return replace(
        evaluation,
        columns=judged,
        correlations=correlations,
        verdict=judge(judged, correlations, rows=rows),
        looked=looked,
    )
