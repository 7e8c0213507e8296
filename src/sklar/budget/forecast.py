"""What an epsilon will buy, before any of it is spent: from public facts alone.

The plan of a release depends on the schema, the budget and the public number of rows, and noise scales are part of the
plan. So the standard error of every count is known beforehand; how well the model will fit is not. The second stage's
scales depend on the first stage's noisy tables; they are forecast as if it were planned like the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget import plan
from sklar.budget.method import Method
from sklar.budget.search import Finding, plan_search
from sklar.errors import BudgetError
from sklar.kernel.cells import Doubles
from sklar.kernel.queries import Shares, moved_sets
from sklar.kernel.theorems import Budget, Neighbors, Spend
from sklar.machine.notebook import Tabular, blank_figure, html_card
from sklar.machine.wording import said, stated
from sklar.public.schema import Schema, SchemaLike
from sklar.public.settings import budget_for
from sklar.public.tree import Tree, joint_of, known_of, tree_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A value whose count exceeds its neighbors' by this many standard errors is found to be a heap.
_HEAP = 4.0
# A number's range needs this many standard errors of its search. At 4.3, means of 12 of 24 columns between wide bounds
# were 10 to 110 times too large, and of 12 between narrow ones 0.6 to 1.1 times; at 8.2 one mean was 500 times too
# large, at 8.5 all of 15 within 6%.
RANGE = 9.0
# A count is within so many standard errors 19 times out of 20, which is what ± says everywhere; one of fewer cannot be
# told from noise.
TWICE = 1.96
# What tables are good for, by ± as a part of a group of average size, which pages show beside the word.
NOISE = "mostly noise"
GRADES = ((0.5, "usable"), (1.0, "usable in part"), (math.inf, NOISE))
# Most columns of categories have no more, and whole numbers of few values; a search may find what a schema lets it.
FEW = 10
# Rough: by the releases in docs/results/speed.md, on two cores, from 194 to 4,000 levels. A factor of three either way.
_SECONDS_START, _SECONDS_FIT, _FIT_POWER, _CELLS_PER_SECOND = 1.5, 0.0032, 1.2, 8.0e7
_BYTES_START, _BYTES_CELL, _BYTES_LEVEL = 290e6, 130.0, 50_000.0

_SHOWN_PAIRS, _SHOWN_COLUMNS, _SHOWN_NEEDS = 8, 20, 3
_ROWS_PER_PERSON = (1, 2, 4, 8, 16, 32)


def ratios(sds: Doubles, sizes: NDArray[Any], rows: int) -> Doubles:
    """How many times an average cell ± is, of tables whose counts have these standard errors: above 1, mostly noise."""
    return np.asarray(TWICE * sds * sizes / rows)


def group_of(sizes: NDArray[Any], rows: int) -> int:
    """How many rows an average cell of most tables of these sizes holds, to two digits.

    >>> group_of(np.array([2, 8, 40]), 32_561)
    4100
    """
    return max(int(float(f"{rows / float(np.median(sizes)):.2g}")), 1)


def grade(sds: Doubles, sizes: NDArray[Any], rows: int) -> str:
    """What tables are good for, in one of the words of `GRADES`: as noise, a group cannot be told from none.

    Nor are tables better than noise of which most are.

    >>> grade(np.array([40.0]), np.array([10]), 1_470), grade(np.array([40.0]), np.array([20]), 1_470)
    ('usable in part', 'mostly noise')
    """
    part = TWICE * rms(sds, sizes) / group_of(sizes, rows)
    noisy = float(np.median(ratios(sds, sizes, rows))) > 1
    return NOISE if noisy else next(word for most, word in GRADES if part <= most)


def within(error: float) -> str:
    """How far a count of this standard error may be off, as everybody is told it."""
    return f"±{TWICE * error:,.0f}"


def band(figures: Sequence[float], write: Callable[[float], str] = within) -> str:
    """The least and the largest of some figures, or the one that both are."""
    return " to ".join(dict.fromkeys((write(min(figures)), write(max(figures)))))


def with_few(schema: Schema) -> Schema:
    """The schema as if a search found `FEW` categories or bins of a column at most; it is public, as the other."""
    fewer = (replace(each, at_most=min(each.at_most, FEW)) if each.private else each for each in schema.attributes)
    return replace(schema, attributes=tuple(fewer))


def supports(worst: Forecast, likely: Forecast) -> list[str]:
    """What counts will be usable for, in sentences: if searches find few levels, and if they find all they may."""
    few, most = likely.supported, worst.supported
    if few == most:
        return [f"{most[:1].upper()}{most[1:]}."]
    few = f"If searches find at most {FEW} categories or bins a column, {few}."
    return [few, f"If they find as many as the schema lets them, {most}."]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Forecast(Tabular):
    """Expected errors of one release.

    The schema is the measured part of the one that was asked about. `one_way_sd`, shape (m,), is the standard error of
    a count of each attribute's levels, and `pair_sd`, shape (m (m - 1) / 2,), that of a cell of each two-way table, by
    all tables together, as `query` states them of rows whose number is public. `split` is the share of the privacy
    cost (of the sum of 1 / scale^2) by purpose, `search_factor` how many times what numbers want the noise of their
    search is. `triples_share` is the most of the second stage's cost that may go to three-way tables, `scores_share`
    the part of all cost that scores of them take. Categories are forecast as if all columns needed a second round. Of
    linked tables (`tree`) the joint one is forecast, whose rows are people.
    """

    schema: Schema
    n_rows: int
    budget: Budget
    method: Method
    one_way_sd: Doubles
    pair_sd: Doubles
    spend: Spend
    split: tuple[tuple[str, float], ...]
    findings: tuple[Finding, ...]
    search_factor: float
    triples_share: float
    scores_share: float
    seconds: float
    memory_bytes: float
    tree: Tree | None = None

    @property
    def one_way_error(self) -> float:
        """The root mean square over all levels of the standard error of their counts."""
        return rms(self.one_way_sd, self.schema.sizes)

    @property
    def pair_error(self) -> float:
        """The root mean square over all two-way cells of the standard error of their counts; 0 without pairs."""
        return rms(self.pair_sd, self.schema.cells.pair_sizes)

    @property
    def one_way_share(self) -> float:
        """The smallest share of the rows that a one-way count can tell from noise, at most 1."""
        return min(TWICE * self.one_way_error / self.n_rows, 1.0)

    @property
    def pair_share(self) -> float:
        """The same of a two-way count."""
        return min(TWICE * self.pair_error / self.n_rows, 1.0)

    @property
    def grades(self) -> tuple[str, str]:
        """What counts of one column and of two will be good for; of two it is nothing where there are no pairs."""
        cells, n = self.schema.cells, self.n_rows
        two = grade(self.pair_sd, cells.pair_sizes, n) if self.pair_sd.size else ""
        return grade(self.one_way_sd, cells.sizes, n), two

    @property
    def support(self) -> str:
        """Counts of how many columns will be usable, at least in part: "two", "one" or "none"."""
        one, two = self.grades
        return "none" if one == NOISE else "one" if two in ("", NOISE) else "two"

    @property
    def supported(self) -> str:
        """The same in words."""
        one, two = self.grades
        if one == NOISE:
            return "nothing survives: tables of one column are mostly noise already"
        said = f"a release is {one} for counts of one column"
        if two in ("", NOISE):
            return said + " only: tables of two are mostly noise" * bool(two)
        return f"a release is {one} for counts of one and of two columns" if one == two else f"{said}, {two} for two"

    @property
    def noisy(self) -> NDArray[np.int64]:
        """Places of pairs whose average cell holds fewer rows than ±, the noisiest first."""
        ratio = ratios(self.pair_sd, self.schema.cells.pair_sizes, self.n_rows)
        return np.argsort(-ratio, kind="stable")[: np.count_nonzero(ratio > 1)]

    @property
    def mostly_noise(self) -> tuple[tuple[str, str], ...]:
        """The names of their attributes."""
        names, (first, second) = self.schema.names, self.schema.cells.pairs
        return tuple((names[first[at]], names[second[at]]) for at in self.noisy)

    @property
    def needs(self) -> dict[str, tuple[str, float]]:
        """How many rows it takes to find anything of each column, in words and as a share of all: above 1, noise."""
        n, found = self.n_rows, {each.attribute: each for each in self.findings if each.of == "domain"}
        needs = {}
        for name, sd in zip(self.schema.names, self.one_way_sd.tolist(), strict=True):
            own, what, least = found.get(name), "a level needs {} to be told from noise", TWICE * sd
            if own is not None and own.threshold is not None:
                what, least = "a category needs {} to be found", own.threshold
            elif own is not None:
                heap, least = f"{math.ceil(_HEAP * own.scale):,} rows", RANGE * own.scale
                what = f"a value needs {heap} to stand out, its range {{}} to be found"
            needs[name] = f"{what.format(f'{math.ceil(least):,} rows')} ({least / n:.1%} of {n:,})", least / n
        return needs

    @property
    def likely(self) -> Forecast:
        """The same release if searches find few levels; itself where there is nothing to search for."""
        whole, budget = self.schema.whole or self.schema, replace(self.budget, rows_per_person=None)
        return self._with(with_few(whole), budget) if self.schema.private_domains else self

    @property
    def hopeless(self) -> tuple[str, ...]:
        """Columns of which all rows would not be enough to tell anything from noise."""
        return tuple(name for name, (_, share) in self.needs.items() if share > 1)

    @property
    def refused(self) -> tuple[str, ...]:
        """Columns of which a search would find noise: for them a release is refused before it is charged."""
        return tuple(name for name in self.hopeless if self.schema.attribute(name).private)

    def verdict(self) -> list[str]:
        """What columns that are searched, or hopeless, need, and whether the rows support all columns."""
        needs, hopeless, epsilon = self.needs, self.hopeless, f"epsilon {self.budget.epsilon:.4g}"
        named = dict.fromkeys((*hopeless, *(finding.attribute for finding in self.findings)))
        # The neediest of those that are searched: --json has all.
        asked = sorted(named, key=lambda name: -needs[name][1])[: max(len(hopeless), _SHOWN_NEEDS)][:_SHOWN_COLUMNS]
        lines = [f"At {epsilon}, {name}: {needs[name][0]}." for name in asked]
        if not hopeless:
            return [*lines, f"{self.n_rows:,} rows at {epsilon}: noise hides no column as a whole."]
        few = ", ".join([*hopeless[:_SHOWN_COLUMNS], *["..."][: len(hopeless) - _SHOWN_COLUMNS > 0]])
        facts = {"rows": self.n_rows, "epsilon": epsilon, "hopeless": len(hopeless), "columns": len(needs), "few": few}
        return [*lines, said("budget.hopeless", **facts)]

    def against_rows(self) -> tuple[Forecast, ...]:
        """The same release with other numbers of rows of each person, and itself; none where it counts people."""
        person = self.schema.person
        if person is None or person.count != "rows":
            return ()
        whole, budget = self.schema.whole or self.schema, replace(self.budget, rows_per_person=None)
        numbers = sorted({*_ROWS_PER_PERSON, person.rows_per_person})
        people = (replace(person, rows_per_person=rows) for rows in numbers)
        return tuple(self._with(replace(whole, person=each), budget) for each in people)

    def _with(self, schema: Schema, budget: Budget) -> Forecast:
        return forecast(self.tree or schema, budget, rows=self.n_rows, method=self.method)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        schema, budget, noisy = self.schema, self.budget, self.mostly_noise
        rows = [(each.budget.rows_per_person, each.one_way_error, each.pair_error) for each in self.against_rows()]
        own = {"rows": self.n_rows, "attributes": schema.n_attributes, "levels": schema.n_levels}
        stated = {key: getattr(budget, key) for key in ("epsilon", "delta", "neighbors", "rows_per_person")}
        return {"table": schema.name, **own, **stated} | {
            "count": None if schema.person is None else schema.person.count,
            "against_rows_per_person": [
                {"rows_per_person": most, "one_way_error": round(one, 3), "two_way_error": round(two, 3)}
                for most, one, two in rows
            ],
            "method": self.method.name,
            "one_way": {
                "standard_error": round(self.one_way_error, 3),
                "smallest_share": round(self.one_way_share, 8),
                "by_attribute": dict(zip(schema.names, self.one_way_sd.round(3).tolist(), strict=True)),
            },
            "two_way": {
                "standard_error": round(self.pair_error, 3),
                "smallest_share": round(self.pair_share, 8),
                "tables": self.pair_sd.size,
                "mostly_noise": len(noisy),
                "noisiest": [list(pair) for pair in noisy[:1000]],
            },
            "three_way": {"most_of_stage_2": self.triples_share, "scores_of_all": self.scores_share},
            "budget_split": dict(self.split),
            "private_domains": {
                finding.attribute: {"standard_error": finding.scale, "threshold": finding.threshold}
                for finding in self.findings
                if finding.of == "domain"
            },
            "search_noise_factor": round(self.search_factor, 3),
            "needs": {name: words for name, (words, _) in self.needs.items()},
            "hopeless": list(self.hopeless),
            "support": {"worst": self.support, "likely": self.likely.support},
            "rough_seconds": round(self.seconds) or None,
            "rough_memory_mb": round(self.memory_bytes / 1e6) if self.seconds else None,
        }

    def lines(self) -> list[str]:
        """For a person to read."""
        return table_lines([self])

    def __repr__(self) -> str:
        return (
            f"Forecast('{self.schema.name}', {self.n_rows:,} rows, epsilon={self.budget.epsilon:.4g}: a count of one "
            f"column {within(self.one_way_error)} rows, of two {within(self.pair_error)}, 19 times out of 20)"
        )

    def _repr_html_(self) -> str:
        cases = self, self.likely
        noisy = band([each.noisy.size for each in cases], "{:,.0f}".format)
        facts = {
            "epsilon": f"{self.budget.epsilon:.4g} ({self.budget.neighbors})",
            "one-way counts": f"{band([each.one_way_error for each in cases])} rows, 19 times out of 20",
            "two-way counts": f"{band([each.pair_error for each in cases])} rows, 19 times out of 20",
            "pairs mostly noise": f"{noisy} of {self.pair_sd.size:,}",
        }
        columns = dict(self.to_columns())
        for name in ("one_way_error", "mean_two_way_error"):
            columns[f"{name.replace('_', ' ')}, ±"] = [TWICE * error for error in columns.pop(name)]
        notes = ["Nothing was spent: computed from the schema, the number of rows and the budget alone."]
        title = f"Forecast for '{self.schema.name}', {self.n_rows:,} rows"
        return html_card(title, facts, columns, verdict=supports(*cases), notes=notes)

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """The standard error of a one-way count, and the mean one of its two-way cells, by attribute."""
        schema = self.schema
        pairs = schema.cells.symmetric(self.pair_sd) if self.pair_sd.size else np.zeros((1, 1))
        facts = {"levels": schema.sizes.tolist(), "weight": [attribute.weight for attribute in schema.attributes]}
        means = (pairs.sum(axis=1) / max(schema.n_attributes - 1, 1)).tolist()
        errors = {"one_way_error": self.one_way_sd.tolist(), "mean_two_way_error": means}
        return {"attribute": list(schema.names), **facts, **errors}

    def plot(self) -> Figure:
        """Within how many rows counts are, 19 times out of 20, against epsilon. Needs matplotlib."""
        return draw_forecasts([self])


def forecast(
    schema: SchemaLike | Tree,
    budget: Budget | None = None,
    *,
    rows: int,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbors: Neighbors | None = None,
    method: Method | str = "auto",
) -> Forecast:
    """Expected errors of a release with these settings. Spends nothing and looks at no data.

    `schema` is a schema, the path of one, or a model for its schema. Give a budget, or an epsilon as its short form.
    Under add-remove the number of rows is not public, and `rows` is the custodian's guess. Attributes that the schema's
    rules determine are not measured and have no line of their own. Of linked tables `rows` are people.

    >>> schema = Schema.from_toml('[attributes.smoker]\\ntype = "boolean"')
    >>> round(forecast(schema, rows=1000, epsilon=1.0).one_way_error, 1)
    5.7
    """
    if type(rows) is not int or rows < 1:
        raise BudgetError(f"rows must be a whole number of at least 1, got {rows!r}.")
    method = Method.of(method)
    budget = method.budget_of(budget, epsilon, delta=delta, neighbors=neighbors)
    known = known_of(schema)
    schema, beside = joint_of(known).measured, plan.beside_of(known)
    budget = budget_for(schema.person, budget)
    public, cells = rows if budget.rows_are_public else None, schema.cells
    search = plan_search(schema, budget, n_rows=public).then(budget)
    facts = {"n_rows": public, "importance": schema.importance, "beside": beside}
    stages = plan.plan_release(cells, budget, method, rest=search.rest, **facts)
    spend = stages.spend + search.spend(budget)
    first, one_way, pairs = stages.first, stages.first.scales(1), stages.first.scales(2)
    if first.of_parities:
        # A cell of two bits is half the sum of two ones and a parity.
        one_way_sd, odd = one_way / math.sqrt(stages.looks), pairs / math.sqrt(stages.looks)
        pair_sd, costs = np.sqrt(2 * one_way_sd[0] ** 2 + odd**2) / 2, _parity_costs(stages)
    else:
        two_way = [pairs, stages.reserve] if stages.reserve.size else [pairs]
        # As `query` counts, by effects: a margin's contrasts from all tables, a pair's interaction from its own.
        margins, two = plan.margin_sd(cells, one_way, stages.pair_precision) ** 2, stages.pair_precision**-1.0
        part_of, (i, j) = 1 - 1 / cells.sizes, (each[: two.size] for each in cells.pairs)
        both = margins[i] * part_of[i] / cells.sizes[j] ** 2 + margins[j] * part_of[j] / cells.sizes[i] ** 2
        # The number of rows, where it is measured, by the totals of all tables.
        totals = stages.looks * float(np.sum(first.scales(0) ** -2.0)) + float(np.sum(one_way**-2.0 / cells.sizes))
        totals += float(np.sum(stages.pair_precision / cells.pair_sizes[: two.size]))
        rows_variance = 0.0 if public is not None else 1 / totals
        one_way_sd = np.sqrt(margins * part_of + rows_variance / cells.sizes**2)
        pair_sd = np.sqrt(two * part_of[i] * part_of[j] + both + rows_variance / (cells.sizes[i] * cells.sizes[j]) ** 2)
        costs = {"one-way tables": float(np.sum(one_way**-2.0))}
        for stage, scales in enumerate(two_way if pairs.size else (), start=1):
            costs[f"two-way tables{f', stage {stage}' if len(two_way) > 1 else ''}"] = float(np.sum(scales**-2.0))
    for query, scales in first.parts:
        if isinstance(query, Shares):
            inside = query.what == plan.INSIDE
            what = "where numbers lie inside bins" if inside else plan.said_of(query.what)
            costs[what] = float(np.sum((scales / query.each) ** -2.0))
    if schema.private_domains:
        costs = {"finding domains": sum(each.tables * each.scale**-2.0 for each in search.findings)} | costs
    if first.scales(0).size:
        costs = {"number of rows": stages.looks * float(first.scales(0)[0]) ** -2.0} | costs
    whole, m, d = sum(costs.values()), schema.n_attributes, schema.n_levels
    scored = plan.plan_scores(cells, rows, stages, schema.targets)
    asked: dict[str, Any] = {"schema": schema, "n_rows": rows, "budget": budget, "method": method}
    asked |= {"one_way_sd": one_way_sd, "pair_sd": pair_sd, "spend": spend, "tree": tree_of(known)}
    return Forecast(
        **asked,
        split=tuple((name, cost / whole) for name, cost in costs.items()),
        findings=search.findings,
        search_factor=search.factor,
        triples_share=plan.TRIPLES_SHARE if plan.looks_for_triples(cells, stages) else 0.0,
        scores_share=sum(each.share for each in scored[0]) if scored else 0.0,
        seconds=_SECONDS_START + _SECONDS_FIT * (d - m) ** _FIT_POWER + rows * m / _CELLS_PER_SECOND,
        memory_bytes=_BYTES_START + _BYTES_CELL * d * d + _BYTES_LEVEL * d,
    )


def require_support(schema: Schema, budget: Budget, method: Method, rows: int | None, *, anyway: bool) -> None:
    """Refuse a release whose searches would find noise, by the rows that are public or stated, where they are.

    Noise in public levels is stated and seen, however large; a domain that noise made is not.
    """
    if rows is None or anyway or not schema.private_domains:
        return
    foreseen = forecast(schema, budget, rows=max(rows, 1), method=method)
    if lost := foreseen.refused:
        needs = f"{lost[0]}: {foreseen.needs[lost[0]][0]}"
        raise BudgetError(said("budget.no_support", verdict=foreseen.verdict()[-1], needs=needs))


def _parity_costs(stages: plan.Stages) -> dict[str, float]:
    """What every order of parities takes of the cost, in the row that moves most of them."""
    scales = np.array([group[0] for order in (1, 2, 3) if (group := stages.first.scales(order)).size])
    moved = moved_sets(stages.first.scales(1).size)[:, : scales.size]
    worst = stages.looks / stages.budget.shifts * moved[np.argmax(moved @ scales**-2.0)] * scales**-2.0
    names = ("counts of ones", "parities of pairs", "parities of triples")
    return dict(zip(names, worst.tolist(), strict=False))


def rms(sds: Doubles, sizes: NDArray[Any]) -> float:
    """The root mean square of errors over the cells of tables of these sizes; 0 without any."""
    return math.sqrt(float(sizes @ sds**2) / float(sizes.sum())) if sds.size else 0.0


def table_lines(forecasts: Sequence[Forecast]) -> list[str]:
    """Several epsilons of one table side by side, as text."""
    first, last = forecasts[0], forecasts[-1]
    schema, n_pairs = first.schema, first.pair_sd.size
    lines = [said("budget.foreseen", of=first, schema=schema, pairs=n_pairs)]
    if schema.whole is not None:
        left_out = ", ".join(f"'{name}' (by '{by}')" for name, by in schema.whole.determined.items())
        lines.append(f"Not measured, because rules determine them: {left_out}.")
    if schema.person is not None:
        lines.append(f"Any one person, with all their rows, is protected. Counted are {schema.person.words}.")
    if first.tree is not None:
        lines += said("budget.tree").splitlines()
    lines += filter(None, [plan.target_words(schema)])
    lines += stated("sklar.budget", "said.toml")["foreseen_head"]
    lines += [
        f"{each.budget.epsilon:>8.4g}  {within(each.one_way_error):>13} {within(each.pair_error):>13}  "
        f"{each.one_way_share:>16.3%} {each.pair_share:>15.3%}  {f'{each.noisy.size:,} of {n_pairs:,}':>12}"
        for each in forecasts
    ]
    lines += ["± holds 19 times out of 20; a smaller count cannot be told from noise.", ""]
    for each in forecasts:
        likely = each.likely
        words = supports(each, likely)
        if len(words) > 1:
            noisy = f"{likely.noisy.size:,} of {n_pairs:,} pairs mostly noise"
            words[0] = f"{words[0][:-1]}: {within(likely.one_way_error)}, {within(likely.pair_error)}, {noisy}."
        lines.append(f"At epsilon {each.budget.epsilon:.4g}, {words[0][:1].lower()}{' '.join(words)[1:]}")
    if against := last.against_rows():
        lines.append(said("budget.foreseen_people", epsilon=last.budget.epsilon))
        lines.append(f"{'rows':>8}  {'one-way':>13} {'two-way':>13}")
        for each in against:
            own = "   (the schema)" * (each.budget == last.budget)
            errors = f"{within(each.one_way_error):>13} {within(each.pair_error):>13}"
            lines.append(f"{each.budget.rows_per_person:>8,}  {errors}{own}")
        lines += [said("budget.foreseen_rows"), ""]
    splits: dict[str, list[str]] = {}
    for each in forecasts:
        split = ", ".join(f"{name} {share:.0%}" for name, share in each.split)
        splits.setdefault(split, []).append(f"{each.budget.epsilon:.4g}")
    lines += [f"Budget at epsilon {', '.join(epsilons)}: {split}." for split, epsilons in splits.items()]
    for name in ("triples_share", "scores_share"):
        for share in sorted({getattr(each, name) for each in forecasts} - {0.0}):
            where = (f"{each.budget.epsilon:.4g}" for each in forecasts if getattr(each, name) == share)
            lines.append(said(f"budget.{name}", share=share, epsilon=", ".join(where)))
    for each in forecasts:
        lines += each.verdict()
        if each.search_factor > 1.005:
            lines.append(said("budget.search_factor", times=each.search_factor))
    if first.findings:
        lines.append(said("budget.foreseen_most"))
    smallest = min(forecasts, key=lambda each: each.budget.epsilon)
    if noisiest := smallest.mostly_noise:
        pairs = "; ".join(f"{one} x {other}" for one, other in noisiest[:_SHOWN_PAIRS])
        left = len(noisiest) - _SHOWN_PAIRS
        pairs += f"; and {left:,} more (--json lists them)" * (left > 0)
        lines += ["", *said("budget.foreseen_noisy", epsilon=smallest.budget.epsilon, pairs=pairs).splitlines()]
    if not first.seconds:
        return lines
    seconds, memory = first.seconds, f"{first.memory_bytes / 1e9:.1f} GB"
    units = ((6_000, 3_600, ".1f", "h"), (100, 60, ".0f", "min"), (0, 1, ".0f", "s"))
    time = next(f"{max(seconds / unit, 1):{form}} {name}" for least, unit, form, name in units if seconds >= least)
    return [*lines, "", f"Rough run time {time} and memory {memory} on two cores; within a factor of three."]


def plot_forecasts(forecasts: Sequence[Forecast], path: str | Path, *, kind: str) -> None:
    """Within how many rows counts are, against epsilon, on logarithmic axes, as png or svg. Needs matplotlib."""
    figure = draw_forecasts(forecasts)
    import matplotlib as mpl

    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "sklar", "svg.fonttype": "none"}):
        figure.savefig(path, format=kind, dpi=110, metadata=metadata)


def draw_forecasts(forecasts: Sequence[Forecast]) -> Figure:
    """The same as a figure."""
    figure, ax = blank_figure(6.4, 4.2)
    ordered = sorted(forecasts, key=lambda each: each.budget.epsilon)
    if len(ordered) == 1:
        # One point is no curve: draw a decade around it.
        only = ordered[0]
        budgets = [replace(only.budget, epsilon=only.budget.epsilon * factor) for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
        ordered = [only._with(only.schema, budget) for budget in budgets]
    first, epsilons = ordered[0], [each.budget.epsilon for each in ordered]
    for label, name in (("two-way counts", "pair_error"), ("one-way counts", "one_way_error"))[
        not first.pair_sd.size :
    ]:
        ax.plot(epsilons, [TWICE * getattr(each, name) for each in ordered], marker="o", markersize=4.5, label=label)
    title = f"{first.schema.name}: a count is within ±, {first.n_rows:,} rows"
    ax.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="rows, 19 times out of 20", title=title)
    ax.set_xticks(epsilons, [f"{each:.4g}" for each in epsilons])
    ax.set_xticks([], minor=True)
    for which in ("major", "minor"):
        getattr(ax.yaxis, f"set_{which}_formatter")("{x:,.4g}")
    ax.grid(visible=True, which="both", color="#e5e7eb")
    ax.legend(frameon=False)
    return figure
