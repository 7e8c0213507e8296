"""How near a release comes to the real rows: what to use of it and what not, a score, errors of counts.

Everything here sees the real rows without noise, and says so on every output. The release path never imports it.

>>> import polars as pl
>>> from sklar import Schema
>>> schema = Schema.from_toml("attributes.smoker.type = 'boolean'")
>>> real, synthetic = pl.DataFrame({"smoker": [True, True, False]}), pl.DataFrame({"smoker": [True, False, False]})
>>> evaluate(real, synthetic, schema).result("one-way").errors.best(100).average
1.0
"""

from __future__ import annotations

import textwrap
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.answer.report import svg
from sklar.answer.report.render import render, short
from sklar.custodian.check import Hidden
from sklar.custodian.evaluate.conjunctions import MAX_TRIPLES, PERCENTS, Answers, Errors, Form, absolute_errors, pearson
from sklar.custodian.evaluate.conjunctions import answer as answer
from sklar.custodian.evaluate.conjunctions import choose_triples as choose_triples
from sklar.custodian.evaluate.conjunctions import read as read_codes
from sklar.custodian.evaluate.dependence import Dependence, FidelityScore, PairFit
from sklar.custodian.evaluate.raw import Floats, RawTable, RowSample
from sklar.custodian.evaluate.verdict import (
    LIMITS,
    PERCENTILES,
    UNTOLD,
    VERDICTS,
    ColumnFit,
    Numbers,
    Reason,
    badness,
    compare_column,
    overall,
    text,
)
from sklar.custodian.evaluate.verdict import worst as worst_of
from sklar.errors import DataError
from sklar.files.write import check_target, write_text
from sklar.machine.extras import require
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.progress import SILENT, Progress
from sklar.machine.wording import said, stated
from sklar.public.schema import Attribute, Schema, SchemaLike
from sklar.public.shown import shown_levels, shown_name, with_unit
from sklar.public.tree import Tree, known_of
from sklar.rows.read import as_released

NOTICE = "PRIVATE: computed from the real rows without noise. For the custodian's eyes; do not publish."

# The paper's border between correlated and uncorrelated pairs of dummies.
HIGH_CORRELATION = 0.5

_WIDTH, _SHOWN_COLUMNS, _WORST = 100, 40, 10
# These limits keep a report readable however wide the table is.
_MOST_DRAWN, _MOST_PAIRS, _BARS, _CELLS = 300, 100, 20, 9
# Enough for both learners to stop improving on tables of this kind, and a bound on memory.
MAX_TRAINING_ROWS = 100_000
_SEED = 2020
# Trees can split at most this many categories.
_MAX_CATEGORIES = 255


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
            "best": [self.errors.best(percent)._asdict() for percent in PERCENTS],
            "mean_total_variation": self.tv,
            "cdf": {"error": at.round(3).tolist(), "share": share.round(6).tolist()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One learner trained on one table, tested on real rows. AUC is one-vs-rest, averaged over the target's levels."""

    target: str
    trained_on: str
    learner: str
    rows: int
    accuracy: float
    auc: float

    @property
    def cells(self) -> tuple[str, ...]:
        """A row of a table."""
        return (self.trained_on, self.learner, f"{self.rows:,}", f"{self.accuracy:.3f}", f"{self.auc:.3f}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evaluation(Tabular):
    """How near a release comes to the real rows: columns and pairs with their verdicts, a score, classes of queries.

    PRIVATE, as they are. `pairs`, which `compared` says more of, and the `score` are there where raw values were
    read. `left_out` are the columns of the real table that the release does not have.
    """

    table: str
    real_rows: int
    synthetic_rows: int
    form: Form | None
    valid_share: float | None
    triples: str
    results: tuple[Result, ...]
    columns: tuple[ColumnFit, ...]
    pairs: tuple[PairFit, ...] = ()
    compared: str = ""
    score: FidelityScore | None = None
    left_out: tuple[str, ...] = ()
    scores: tuple[Score, ...] = ()

    def __repr__(self) -> str:
        return f"Evaluation('{self.table}', {self.real_rows:,} real rows, {self.synthetic_rows:,} synthetic; {NOTICE})"

    def _repr_html_(self) -> str:
        facts = {"rows": f"{self.real_rows:,} real, {self.synthetic_rows:,} synthetic"}
        facts |= {} if self.score is None else {"score": self.score.line}
        told = [f"{what}: {verdict}. {words}" for what, verdict, words in self.summary]
        return html_card(f"Evaluation of '{self.table}'", facts, self.to_columns(), verdict=told, notes=[NOTICE])

    @property
    def ranked(self) -> list[ColumnFit]:
        """The columns, the worst first."""
        return sorted(self.columns, key=lambda column: (*map(badness, column.reasons[:1]), (0, 0.0)))

    @property
    def worst(self) -> list[tuple[ColumnFit | PairFit, Reason]]:
        """The worst things of any kind, the worst first: a column or pair, and its worst reason."""
        every: list[ColumnFit | PairFit] = [*self.columns, *self.pairs]
        found = [(each, min(each.reasons, key=badness)) for each in every if each.reasons]
        return sorted(found, key=lambda each: badness(each[1]))[:_WORST]

    @property
    def summary(self) -> list[tuple[str, str, str]]:
        """Columns, pairs and tails: the verdict on all of them (`overall`), how many have each, and the worst one."""
        own, of_tails = [each for each in self.columns if each.numbers is not None], ("quantiles", "tail", UNTOLD)
        tails = [(each.name, tuple(why for why in each.reasons if why.figure in of_tails)) for each in own]
        every = {
            "Columns": [(each.name, each.verdict, each.reasons) for each in self.columns],
            "Pairs": [(each.name, each.verdict, each.reasons) for each in self.pairs],
            "Tails": [(name, worst_of(why.verdict for why in reasons), reasons) for name, reasons in tails],
        }
        told = []
        for what, held in every.items():
            times = Counter(verdict for _, verdict, _ in held)
            words = f"{times['use']:,} of {len(held):,} can be used"
            words = f"All {len(held):,} can be used" if times["use"] == len(held) > 1 else words
            words += f", {times['with care']:,} with care" if times["with care"] else ""
            words += f", {times['do not use']:,} cannot" if times["do not use"] else ""
            if what == "Pairs" and self.score is not None and self.score.dependence is not None:
                words += f". Of what columns say of each other, {self.score.dependence:.0f} of 100 is kept"
            if lost := [(name, why) for name, _, reasons in held for why in reasons]:
                name, why = min(lost, key=lambda each: badness(each[1]))
                words += f". The worst: {name}, {why.words}"
            elif times["use"] < len(held):
                words += ". None is worse than its columns"
            nothing = what, "not compared", stated("sklar.custodian", "said.toml")["nothing"][what]
            told.append((what, overall([verdict for _, verdict, _ in held]), words) if held else nothing)
        return told

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each column, the worst first: its verdict, and why."""
        ranked = self.ranked
        why = ["; ".join(why.words for why in each.reasons) or each.told for each in ranked]
        return {"column": [each.name for each in ranked], "verdict": [each.verdict for each in ranked], "why": why}

    def result(self, name: str) -> Result:
        """The class of that name."""
        return next(result for result in self.results if result.name == name)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "notice": NOTICE,
            "score": None if self.score is None else asdict(self.score),
            "summary": [dict(zip(("what", "verdict", "words"), each, strict=True)) for each in self.summary],
            "worst": [{"name": each.name, **asdict(reason)} for each, reason in self.worst],
            "limits": dict(LIMITS),
            "left_out": list(self.left_out),
            **{name: getattr(self, name) for name in ("table", "real_rows", "synthetic_rows", "form", "valid_share")},
            "three_way_queries": self.triples,
            "results": [result.to_dict() for result in self.results],
            "columns": [column.to_dict() for column in self.columns],
            "pairs": [pair.to_dict() for pair in self.pairs],
            "pairs_compared": self.compared,
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
        lines += self._lines_of_verdicts()
        if self.scores:
            title = f"Predicting '{self.scores[0].target}' on real test rows:"
            heads = ("trained on", "learner", "rows", "accuracy", "AUC")
            lines += text_table(title, "{:<24}{:<24}{:>10}{:>10}{:>8}", heads, (each.cells for each in self.scores))
        return [line.rstrip() for line in lines]

    @property
    def distances(self) -> str:
        """How far tables of one, two and three columns are from the real ones, in words."""
        every = (each.tv for each in self.results if each.tv is not None)
        named = zip(every, ("one column", "two", "three"), strict=False)
        told = ", ".join(f"{tv:.2%} of {order}" for tv, order in named)
        return f"Mean total variation distance of tables: {told}. Three-way queries: {self.triples}."

    def _lines_of_verdicts(self) -> Iterator[str]:
        """The score, the worst things, and every column with its reasons."""
        opening = ["" if self.score is None else self.score.line]
        opening += [f"{what}: {verdict}. {words}." for what, verdict, words in self.summary]
        if self.left_out:
            opening.append(f"Not in the release: {', '.join(self.left_out)}.")
        told = [f"{at}. {each.name}: {why.verdict}. {why.words}." for at, (each, why) in enumerate(self.worst, start=1)]
        opening += ["", "The worst:" if told else "Nothing is lost beyond chance and the limits.", *told]
        every = zip(*self.to_columns().values(), strict=True)
        columns = [f"{name}: {verdict}. {why}." for name, verdict, why in every][:_SHOWN_COLUMNS]
        more = len(self.columns) - len(columns)
        columns += [f"... and {more} more, none of them worse (--json has all)."] if more else []
        pairs = ["", f"Pairs: {self.compared}."] if self.pairs else []
        if self.form == "dummies":
            pairs = ["", "Raw values are not compared: dummies have none."]
        pairs += ["", f"{self.distances} Errors of counts are in --json."]
        for line in ("", *opening, "", "Columns, the worst first (synthetic for real):", "", *columns, *pairs):
            yield from textwrap.wrap(line, _WIDTH, subsequent_indent="  ") or [""]


def text_table(title: str, form: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A title, and rows of texts below their heads."""
    return ["", title, "", *(form.format(*row) for row in (heads, *rows))]


def evaluate(
    real: object,
    synthetic: object,
    schema: SchemaLike | Tree,
    *,
    max_triples: int = MAX_TRIPLES,
    target: str | None = None,
    test: object | None = None,
    report: str | Path | None = None,
    progress: Progress = SILENT,
) -> Evaluation:
    """Compare a synthetic table with the real one. PRIVATE: the result is for the custodian's eyes.

    Each table is a path or anything that exports an Arrow stream, of records or of dummies; `schema` is a schema, the
    path of one, or a model for its schema. Linked tables are given as to a release, and compared all together
    (`linked`). With more than `max_triples` three-way queries, a stated random sample is asked. A `test` table of real
    rows kept apart is one end of the score; without it, halves of the real rows are. With a `target` attribute,
    learners are trained on both tables, which are then read twice, and tested on it. `report` (.html) is a file to
    write, PRIVATE as well.
    """
    page = None if report is None else check_target(report, (".html",), real, synthetic, schema)
    if target is not None and test is None:
        raise DataError(said("custodian.untested"))
    known = known_of(schema)
    if isinstance(known, Tree):
        # Imported here: it imports this module.
        from sklar.custodian.evaluate.linked import evaluate_tree

        if target is not None:
            raise DataError(said("custodian.one_table"))
        return evaluate_tree(real, synthetic, known, report=report, progress=progress)  # type: ignore[return-value]
    schema = known
    if target is not None:
        schema.attribute(target)
    synthetic = as_released(synthetic, schema)
    queries, raw = choose_triples(schema, max_triples=max_triples), [RawTable(schema) for _ in range(3)]
    progress.stage("count real rows", unit="rows")
    true = answer(real, schema, queries, progress=progress, raw=raw[0])
    progress.stage("count synthetic rows", unit="rows")
    given = answer(synthetic, schema, queries, progress=progress, raw=raw[1])
    if test is not None:
        progress.stage("count test rows", unit="rows")
        form, batches = read_codes(test, schema, raw[2], progress)
        deque(batches, maxlen=0)
    progress.stage("compare")
    # Dummies have no raw values.
    kept = raw[: 2 + (test is not None and form == "records")] if true.form == given.form == "records" else []
    evaluation = compare(true, given, [each.done() for each in kept])
    if target is not None:
        progress.stage("learn")
        evaluation = replace(evaluation, scores=usefulness(real, synthetic, test, schema, target=target))
    if page is not None:
        progress.stage("report")
        shown = render("sklar.custodian.evaluate", "private.html.j2", view(evaluation, true, given))
        write_text(page, shown, private=True)
    return evaluation


def compare(true: Answers, given: Answers, raw: Sequence[RawTable] = ()) -> Evaluation:
    """Errors of given answers, class by class, and the raw values of both tables and of test rows where they were read.

    Q1 asks X_i = 1 only: in a table of n rows X_i = 0 is wrong by as much. The mean total variation distance of order k
    is half the sum of all errors over n and the number of k-way tables; where triples are sampled it is an estimate,
    and for dummies, whose tables need not sum to n, it is the same formula.
    """
    schema, n, factor = true.schema, true.n_rows, true.n_rows / given.n_rows
    high, triples = np.abs(pearson(true)) >= HIGH_CORRELATION, true.triples
    both = {1: (true.one_way, given.one_way), 2: (true.two_way, given.two_way), 3: (triples, given.triples)}

    def result(name: str, order: int, where: NDArray[np.bool_] | None = None) -> Result:
        errors, tables = absolute_errors(*both[order], factor=factor, where=where), comb(schema.n_attributes, order)
        if where is not None or not tables:
            return Result(name=name, errors=errors)
        queries = true.asked.in_all if order == 3 else errors.size
        return Result(name=name, errors=errors, tv=errors.total / max(errors.size, 1) * queries / (2 * n * tables))

    levels, rows = np.abs(true.one_way - factor * given.one_way), (n, given.n_rows)
    distances = (np.add.reduceat(levels, schema.offsets[:-1]) / (2 * n)).tolist()
    columns = tuple(
        compare_column(attribute, tv, [table.columns[place] for table in raw[:2]], rows)
        for place, (attribute, tv) in enumerate(zip(schema.attributes, distances, strict=True))
    )
    by_values: dict[str, Any] = {}
    if raw:
        dependence, test = Dependence(*raw[:2]), raw[2] if len(raw) > 2 else None
        by_values = {"pairs": dependence.compare(columns), "compared": dependence.stated}
        by_values |= {"score": dependence.score(columns, test), "left_out": raw[0].left_out}
    return Evaluation(
        table=schema.name,
        real_rows=n,
        synthetic_rows=given.n_rows,
        form=given.form,
        valid_share=None if given.valid_rows is None else given.valid_rows / given.n_rows,
        triples=true.asked.stated,
        results=(
            result("one-way", 1),
            result("two-way", 2),
            result("two-way, |r| >= 0.5", 2, high),
            result("two-way, |r| < 0.5", 2, ~high),
            result("three-way", 3),
            result("three-way, count > 0", 3, triples > 0),
        ),
        columns=columns,
        **by_values,
    )


def usefulness(real: object, synthetic: object, test: object, schema: Schema, *, target: str) -> tuple[Score, ...]:
    """Accuracy and AUC on real test rows of learners trained on real and on synthetic rows.

    Logistic regression sees one-hot levels; gradient-boosted trees see codes, ordinal where the attribute is binned and
    categorical otherwise. At most `MAX_TRAINING_ROWS` rows are used, a random sample with a fixed seed. Rows without a
    level of the target are left out; of dummies that set several levels of an attribute, the first counts.
    """
    require("sklearn", what="training on synthetic rows", package="scikit-learn", extra="learn")
    from threadpoolctl import threadpool_limits

    where = schema.names.index(schema.attribute(target).name)
    tested = _sample(test, schema, where, MAX_TRAINING_ROWS)
    scores = []
    for name, data in (("real rows", real), ("synthetic rows", synthetic)):
        trained = _sample(data, schema, where, MAX_TRAINING_ROWS)
        levels = np.unique(trained[where])
        for learner, model in _learners(schema, where).items():
            chances = np.zeros((tested.shape[1], int(schema.sizes[where])))
            chances[:, levels] = 1.0
            # More threads gain little on tables this small, and slow down a busy machine a hundredfold.
            with threadpool_limits(1):
                if levels.size > 1:
                    model.fit(np.delete(trained, where, axis=0).T, trained[where])
                    chances[:, levels] = model.predict_proba(np.delete(tested, where, axis=0).T)
            figures = dict(zip(("accuracy", "auc"), _judge(tested[where], chances), strict=True))
            scores.append(Score(target=target, trained_on=name, learner=learner, rows=trained.shape[1], **figures))
    return tuple(scores)


def _sample(data: object, schema: Schema, where: int, wanted: int) -> NDArray[np.int32]:
    """Codes of at most `wanted` random rows that have a target, shape (m, rows), from one pass over the table."""
    form, batches = read_codes(data, schema)
    sample = RowSample(schema.n_attributes, wanted, np.int32)
    for block in batches:
        codes = block if form == "records" else first_codes(block, schema)
        sample.add(codes[:, codes[where] >= 0])
    if sample.rows.shape[1] == 0:
        raise DataError(f"no row has a level of the target '{schema.names[where]}'. Choose another target.")
    return sample.rows


def first_codes(dummies: NDArray[np.bool_], schema: Schema) -> NDArray[np.int32]:
    """For each row of dummies, shape (d, rows), the first level of each attribute that is set, or -1; (m, rows)."""
    blocks = np.split(dummies, schema.offsets[1:-1])
    return np.stack([np.where(block.any(axis=0), block.argmax(axis=0), -1) for block in blocks]).astype(np.int32)


def _learners(schema: Schema, where: int) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

    others = [attribute for index, attribute in enumerate(schema.attributes) if index != where]
    levels = [np.arange(each.n_levels) for each in others]
    nominal = [each.categorical and not each.ordered and each.n_levels <= _MAX_CATEGORIES for each in others]
    # Code -1, which is no level, sets no column, and is a missing value to trees.
    encoder = OneHotEncoder(categories=levels, handle_unknown="ignore")
    missing = FunctionTransformer(lambda codes: np.where(codes < 0, np.nan, codes))
    trees = HistGradientBoostingClassifier(categorical_features=nominal, random_state=_SEED)
    return {
        "logistic regression": make_pipeline(encoder, LogisticRegression(max_iter=2000)),
        "boosted trees": make_pipeline(missing, trees),
    }


def _judge(truth: NDArray[np.int32], chances: NDArray[np.float64]) -> tuple[float, float]:
    from sklearn.metrics import roc_auc_score

    accuracy = float(np.mean(chances.argmax(axis=1) == truth))
    levels = [level for level in range(chances.shape[1]) if 0 < np.count_nonzero(truth == level) < truth.size]
    aucs = [roc_auc_score(truth == level, chances[:, level]) for level in levels]
    return accuracy, float(np.mean(aucs)) if aucs else 0.5


def view(evaluation: Evaluation, true: Answers, given: Answers) -> Hidden:
    """What the report shows, in the words of `templates/private.html.j2`; counts are scaled to the real rows."""
    above = [each.name for each, _ in evaluation.worst if isinstance(each, ColumnFit)]
    rest = [each for each in evaluation.ranked if each.name not in above]
    shown = Hidden(banner=NOTICE, evaluation=evaluation, limits=LIMITS, dependence=[*_dependence(evaluation)], worst=[])
    for each, why in evaluation.worst:
        pair = {"why": why, "is_pair": isinstance(each, PairFit)}
        shown["worst"].append(_chart(evaluation, each, true, given) | pair)
    shown["verdicts"] = list(zip(*evaluation.to_columns().values(), strict=True))[:_MOST_DRAWN]
    shown["charts"] = [_chart(evaluation, each, true, given) for each in rest[:_MOST_DRAWN]]
    shown["percentiles"] = [f"{at}%" for at in PERCENTILES]
    shown["quantiles"] = [*_quantiles(evaluation.ranked[:_MOST_DRAWN])]
    return shown


def _quantiles(columns: Sequence[ColumnFit]) -> Iterator[tuple[str, ...]]:
    """Percentiles of the numbers of each column, the real ones first."""
    for each in columns:
        name = short(shown_name(each.attribute), 60)
        for title, held in () if each.numbers is None else ((name, each.numbers.real), ("", each.numbers.synthetic)):
            points = (text(each.attribute, value) for value in held.percentiles(PERCENTILES))
            yield title, "real" if title else "synthetic", *points


def _chart(evaluation: Evaluation, column: ColumnFit | PairFit, true: Answers, given: Answers) -> Hidden:
    """The chart of one column, or of a pair. Where numbers were not compared, levels are drawn."""
    if isinstance(column, PairFit):
        return _pair(column, true, given)
    title = short(with_unit(column.attribute, shown_name(column.attribute)), 90)
    if column.numbers is not None:
        return draw_numbers(title, column, column.numbers, (evaluation.real_rows, evaluation.synthetic_rows))
    own = true.schema.cells.levels(true.schema.names.index(column.name))
    real, other = (each.one_way[own] / each.n_rows for each in (true, given))
    # The levels in the order of the schema: all, or the largest.
    largest, levels = np.argsort(-np.maximum(real, other), kind="stable")[:_BARS], shown_levels(column.attribute)
    entries = [(levels[k], float(real[k]), float(other[k])) for k in np.sort(largest)]
    left_out = len(levels) - len(entries)
    told = f"{column.told}" + (f"; {left_out:,} smaller levels not shown" if left_out else "")
    bars = svg.paired_bars(entries, title=f"Levels of {title}", description=told)
    return Hidden(name=title, told=told, verdict=column.verdict, numbers=None, bars=bars)


def _pair(pair: PairFit, true: Answers, given: Answers) -> Hidden:
    """A pair's table of levels in both tables, and their difference; neighbors, or all rare levels, are together."""
    first, second = sorted(map(true.schema.names.index, pair.columns))
    own = [true.schema.attributes[at] for at in (first, second)]
    tables = [true.schema.cells.table(each.two_way, first, second) / each.n_rows for each in (true, given)]
    parts = [together(each, (tables[0] + tables[1]).sum(axis=1 - at)) for at, each in enumerate(own)]
    real, other = (parts[0][1] @ table @ parts[1][1].T for table in tables)
    name, labels = short(pair.name, 90), (parts[0][0], parts[1][0])
    told = f"association {pair.association[1]:.2f} for {pair.association[0]:.2f}"
    shown = {"real": real, "synthetic": other, "difference": other - real}
    drawn = svg.grids(shown, labels, title=f"Rows by {name}", description=told)
    return Hidden(name=name, told=told, verdict=pair.verdict, numbers=drawn, bars=None)


def together(attribute: Attribute, shares: Floats) -> tuple[list[str], Floats]:
    """At most `_CELLS` groups of levels, of neighbors or of rare ones: labels, and shape (groups, levels) who is in."""
    levels, places = shown_levels(attribute), np.arange(attribute.n_levels)
    if places.size <= _CELLS:
        return list(levels), np.eye(places.size)
    if attribute.binned:
        groups = places * _CELLS // places.size
        held = [np.flatnonzero(groups == at) for at in range(_CELLS)]
        labels = [levels[each[0]] + " …" * (each.size > 1) for each in held]
    else:
        common = np.sort(np.argsort(-shares, kind="stable")[: _CELLS - 1])
        groups = np.where(np.isin(places, common), np.searchsorted(common, places), _CELLS - 1)
        labels = [*(levels[k] for k in common), "all others"]
    return labels, (groups == np.arange(_CELLS)[:, None]).astype(float)


def draw_numbers(name: str, column: ColumnFit, numbers: Numbers, rows: tuple[int, int]) -> Hidden:
    """The numbers of a column on an axis, and its missing values and texts as bars below: shares of all rows."""
    both = numbers.real, numbers.synthetic
    told = column.told
    entries = [(each.what, each.real, each.synthetic) for each in column.absent]
    shares = [(each.center, each.counts / n) for each, n in zip(both, rows, strict=True)]
    drawn = svg.bins(svg.histogram(column.attribute, shares), title=f"Numbers of {name}", description=told)
    bars = svg.paired_bars(entries, title=f"Gaps of {name}", description=told) if entries else None
    return Hidden(name=name, told=told, verdict=column.verdict, numbers=drawn, bars=bars)


def _dependence(evaluation: Evaluation) -> Iterator[tuple[str, ...]]:
    """The pairs that lose most."""

    def loss(pair: PairFit) -> tuple[int, float]:
        return VERDICTS.index(pair.verdict), abs(pair.association[0] - pair.association[1])

    for pair in sorted(evaluation.pairs, key=loss, reverse=True)[:_MOST_PAIRS]:
        why = "; ".join(why.words for why in pair.reasons) or "as its columns" * (pair.verdict != "use")
        yield short(pair.name, 80), pair.verdict, *(f"{value:.2f}" for value in pair.association), why
