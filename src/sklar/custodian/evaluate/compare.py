"""A release against the real rows: every query class, its errors, and a compact table of both."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import comb
from typing import Any

import numpy as np

from sklar.custodian.evaluate.errors import PERCENTS, Errors, absolute_errors
from sklar.custodian.evaluate.queries import MAX_TRIPLES, Answers, Form, answer, choose_triples, pearson
from sklar.custodian.evaluate.usefulness import Score, usefulness
from sklar.errors import DataError
from sklar.machine.progress import SILENT, Progress
from sklar.public.schema import Schema
from sklar.rows.read import as_released

NOTICE = "PRIVATE: computed from the real rows without noise. For the custodian's eyes; do not publish."

# The paper's border between correlated and uncorrelated pairs of dummies.
HIGH_CORRELATION = 0.5


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """How near a release comes to the real rows, class by class. Private, as the real rows are."""

    table: str
    real_rows: int
    synthetic_rows: int
    form: Form | None
    valid_share: float | None
    triples: str
    results: tuple[Result, ...]
    scores: tuple[Score, ...] = ()

    def result(self, name: str) -> Result:
        """The class of that name."""
        return next(result for result in self.results if result.name == name)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "notice": NOTICE,
            "table": self.table,
            "real_rows": self.real_rows,
            "synthetic_rows": self.synthetic_rows,
            "form": self.form,
            "valid_share": self.valid_share,
            "three_way_queries": self.triples,
            "results": [result.to_dict() for result in self.results],
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
        lines += [
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
        if self.scores:
            lines += ["", f"Predicting '{self.scores[0].target}' on real test rows:", ""]
            lines.append(f"{'trained on':<24}{'learner':<24}{'rows':>10}{'accuracy':>10}{'AUC':>8}")
            lines += [
                f"{score.trained_on:<24}{score.learner:<24}{score.rows:>10,}{score.accuracy:>10.3f}{score.auc:>8.3f}"
                for score in self.scores
            ]
        return [line.rstrip() for line in lines]


def evaluate(
    real: object,
    synthetic: object,
    schema: Schema,
    *,
    max_triples: int = MAX_TRIPLES,
    target: str | None = None,
    test: object | None = None,
    progress: Progress = SILENT,
) -> Evaluation:
    """Compare a synthetic table with the real one. Private: the result is for the custodian's eyes.

    Each table is a path or anything that exports an Arrow stream, of records or of dummies. With more than
    `max_triples` three-way queries, a stated random sample is asked. With a `target` attribute and a real `test` table
    learners are trained on both tables too; they are then read twice, so a stream that ends does not do.
    """
    if (target is None) != (test is None):
        raise DataError("usefulness needs both a target attribute and a test table of real rows. Give both, or none.")
    if target is not None:
        schema.attribute(target)
    synthetic = as_released(synthetic, schema)
    asked = choose_triples(schema, max_triples=max_triples)
    progress.stage("count real rows", unit="rows")
    true = answer(real, schema, asked, progress=progress)
    progress.stage("count synthetic rows", unit="rows")
    given = answer(synthetic, schema, asked, progress=progress)
    progress.stage("compare")
    evaluation = compare(true, given)
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
    return Evaluation(
        table=schema.name,
        real_rows=n,
        synthetic_rows=given.n_rows,
        form=given.form,
        valid_share=None if given.valid_rows is None else given.valid_rows / given.n_rows,
        triples=true.asked.stated,
        results=tuple(results),
    )
