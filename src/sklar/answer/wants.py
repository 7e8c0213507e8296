"""Planning by question: the smallest epsilon that answers what somebody wants to know, and what an epsilon answers.
More: docs/derivations.md.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sklar.answer import DEFAULT_LEVEL
from sklar.answer.effects import Effect, Effects, Floats, normal_quantile
from sklar.answer.infer.onestep import means_of
from sklar.answer.predicate import QueryError, find_attribute, is_name, parse, resolve, tokenize
from sklar.budget.account import Account, choose_accountant, own_cost
from sklar.budget.forecast import Forecast, forecast, within
from sklar.budget.ledger import Ledger
from sklar.budget.method import Method
from sklar.errors import BudgetError
from sklar.kernel.theorems import Neighbors
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.wording import said
from sklar.public.schema import Schema, SchemaLike
from sklar.public.tree import Tree, joint_of, known_of

# Where the smallest epsilon is looked for, three digits each. Beyond the upper end nobody would call it private.
MOST = 100.0
_EPSILONS = (*(round(n * 10.0**-place, place) for place in range(5, 0, -1) for n in range(100, 1000)), MOST)

_WANT = re.compile(
    r"(?is)(?P<question>.*\S)\s+within\s+(?P<number>[0-9.,_]+)\s*(?P<unit>%|rows?)?(?:\s*of\s+(?:the\s+)?rows)?\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A question about a sum of `cells` cells of a table, which are `held`, or about all (`whole`), and its margin."""

    text: str
    attributes: tuple[int, ...]
    cells: int
    whole: bool
    within: float
    held: Floats = field(compare=False)

    def reach(self, expected: Forecast) -> float:
        """Half the width of the answer's interval, in rows: for a table, of all its cells together."""
        sizes, axes = expected.schema.sizes[list(self.attributes)], range(len(self.attributes))
        parts, cells = np.maximum(1 - 1 / sizes, 1e-9), expected.one_way_sd[list(self.attributes)] ** 2
        by_set: dict[tuple[int, ...], Effect] = {
            (axis,): Effect(values=np.zeros(sizes[axis]), variance=cells[axis] / parts[axis]) for axis in axes
        }
        if len(axes) > 1:
            # What a cell of a pair has beside its margins' contrasts.
            whole = expected.pair_sd[expected.schema.cells.pair(*self.attributes)] ** 2
            alone = float(whole - np.sum(cells / sizes[::-1] ** 2)) / float(np.prod(parts))
            by_set[(0, 1)] = Effect(values=np.zeros(sizes), variance=alone)
        where, shape = tuple(axes), tuple(sizes.tolist())
        effects = Effects(where=where, sizes=shape, by_set=by_set, n_rows=1, n_rows_variance=0.0)
        sd = math.sqrt(means_of({where: self.held[None]}, effects)[1][0, 0])
        # All cells of a table are within reach with the product of their chances, or more (Sidak).
        return sd * normal_quantile(DEFAULT_LEVEL ** (1 / self.cells) if self.whole else DEFAULT_LEVEL)

    def is_met(self, expected: Forecast) -> bool:
        """Whether the answer is as near as wanted."""
        return self.reach(expected) <= self.within


def read_want(text: str, schema: Schema, rows: int) -> Want:
    """What a person wants to know of a table of this schema."""
    match = _WANT.fullmatch(text.strip())
    if match is None:
        raise QueryError(said("answer.want", got=text))
    try:
        number = float(match["number"].replace(",", "").replace("_", ""))
    except ValueError:
        raise QueryError(f"'{text}': the margin must be a number such as 2% or 500 rows.") from None
    within = number * rows / 100 if match["unit"] == "%" else number
    if match["unit"] is None or within <= 0:
        raise QueryError(f"'{text}': the margin must be above 0, in % of the rows or in rows. Write 2% or 500 rows.")
    question = match["question"]
    table = _table(question, schema)
    if table:
        where = tuple(sorted({schema.sources[index][0] for index in table}))
        cells = math.prod(schema.attributes[index].n_levels for index in table)
        held = np.zeros(schema.measured.sizes[list(where)])
        held.flat[0] = 1.0
        return Want(text=text.strip(), attributes=where, cells=cells, whole=True, within=within, held=held)
    hidden = {attribute.name for attribute in schema.private_domains}
    private = [token.text for token in tokenize(question) if is_name(token, schema) and token.text in hidden]
    if private:
        raise QueryError(said("answer.want_private", name=private[0]))
    expression, measured = resolve(parse(question), schema).traced(schema), schema.measured
    where = expression.attributes
    if len(where) > 2:
        raise QueryError(said("answer.want_wide", question=question, number=len(where)))
    held = expression.cells({i: np.arange(measured.sizes[i]) for i in where}).astype(np.float64)
    cells = max(int(np.count_nonzero(held)), 1)
    return Want(text=text.strip(), attributes=where, cells=cells, whole=False, within=within, held=held)


def _table(question: str, schema: Schema) -> list[int]:
    """The one or two attributes of a whole table; none where the question is a predicate."""
    *named, _ = tokenize(question)
    if len(named) == 3 and named[1].kind == "word" and named[1].text.lower() in ("x", "by"):
        del named[1]
    elif len(named) != 1 or not is_name(named[0], schema):
        return []
    table = [find_attribute(token, schema) for token in named]
    if len(set(table)) < len(table):
        raise QueryError(f"a table is of two different attributes, got '{question}'. Want '{named[0].text} within 2%'.")
    return table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Planned(Tabular):
    """An epsilon, `asked` for or else the smallest that answers everything, and what it takes from an account."""

    forecast: Forecast
    wants: tuple[Want, ...]
    asked: bool
    account: Account | None = None

    @property
    def epsilon(self) -> float:
        """The budget."""
        return self.forecast.budget.epsilon

    @property
    def answered(self) -> bool:
        """Whether every answer is as near as wanted."""
        return all(want.is_met(self.forecast) for want in self.wants)

    def __repr__(self) -> str:
        met = f"{sum(self.to_columns()['met'])} of {len(self.wants)} wants met"
        return f"Planned('{self.forecast.schema.name}', epsilon={self.epsilon:.4g}: {met})"

    def _repr_html_(self) -> str:
        facts = {"epsilon": f"{self.epsilon:.4g}", "two-way counts": f"{within(self.forecast.pair_error)} rows"}
        return html_card(f"Plan for '{self.forecast.schema.name}'", facts, self.to_columns())

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each want: what was asked for, and how near its answer comes with 95% confidence, in rows."""
        return {
            "want": [want.text for want in self.wants],
            "within_rows": [want.within for want in self.wants],
            "reached_rows": [want.reach(self.forecast) for want in self.wants],
            "met": [want.is_met(self.forecast) for want in self.wants],
        }

    def leaves(self) -> float | None:
        """What the account would have left of its epsilon; None without an account, or where it would not fit."""
        budget, spend = self.forecast.budget, self.forecast.spend
        accountant = None if self.account is None else choose_accountant(self.account, budget, spend)
        if self.account is None or accountant is None:
            return None
        own, delta = own_cost(budget, spend)
        spent = self.account.epsilon_with(accountant, budget.cost(spend), spend.lost_delta, (own, delta))
        return max(self.account.epsilon - spent, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        columns, account, expected, ledger = self.to_columns(), self.account, self.forecast, None
        if account is not None:
            ledger = {"dataset": account.dataset, "epsilon": account.epsilon, "left_after": self.leaves()}
        return {
            "table": expected.schema.name,
            "rows": expected.n_rows,
            "epsilon": self.epsilon,
            "epsilon_given": self.asked,
            "answered": self.answered,
            "wants": [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)],
            "ledger": ledger,
            "forecast": expected.to_dict(),
        }

    def lines(self) -> list[str]:
        """For a person to read."""
        expected, n, account = self.forecast, self.forecast.n_rows, self.account
        lines = [
            f"Table '{expected.schema.name}', {n:,} rows. Nothing was spent: this follows from the schema, the number "
            "of rows and the budget alone.",
            "",
            f"At epsilon = {self.epsilon:.4g}, with 95% confidence each:"
            if self.asked
            else f"Smallest epsilon that answers all with 95% confidence each: {self.epsilon:.4g}",
        ]
        for want in self.wants:
            reach, met = want.reach(expected), "yes" if want.is_met(expected) else "NO "
            lines.append(f"  {met}  {want.text}: within {reach:,.0f} rows ({reach / n:.2%} of them)")
        if account is not None:
            left, name = self.leaves(), f"set '{account.dataset}'"
            fits = f"data {name} would have epsilon = {left or 0.0:.4g} left of {account.epsilon:.4g}."
            unfit = f"it does not fit. Data {name} has spent epsilon = {account.spent:.4g} of {account.epsilon:.4g}; "
            unfit += f"one more release fits up to about {account.left:.4g}."
            lines += ["", f"Ledger: {unfit if left is None else fits}"]
        return [*lines, "", "What else it buys:", *expected.lines()]


def plan(
    schema: SchemaLike | Tree,
    *,
    rows: int,
    want: str | Sequence[str] = (),
    epsilon: float | None = None,
    delta: float | None = None,
    neighbors: Neighbors | None = None,
    method: Method | str = "auto",
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
) -> Planned:
    """The smallest epsilon that answers all that is wanted, or what a given epsilon answers. Spends nothing.

    `want` is a question with a margin, or several. With a `ledger`, say what the release would leave of its account of
    `dataset` (by default the schema's name).

    >>> schema = Schema.from_toml('[attributes.smoker]\\ntype = "boolean"')
    >>> plan(schema, rows=10_000, want="smoker = true within 1%").epsilon
    0.0987
    """
    known = known_of(schema)
    joint = joint_of(known)
    texts = [want] if isinstance(want, str) else list(want)
    if epsilon is None and not texts:
        raise BudgetError('give what is wanted, or an epsilon to say what it answers. Example: want="sex within 2%".')
    expected = partial(forecast, known, rows=rows, delta=delta, neighbors=neighbors, method=method)
    first = expected(epsilon=1.0 if epsilon is None else epsilon)
    wants = tuple(read_want(text, joint, rows) for text in texts)
    account = None
    if ledger is not None:
        account = (ledger if isinstance(ledger, Ledger) else Ledger(ledger)).account(dataset or known.name)
    if epsilon is not None:
        return Planned(forecast=first, wants=wants, asked=True, account=account)

    def planned(budget: float) -> Planned:
        return Planned(forecast=expected(epsilon=budget), wants=wants, asked=False, account=account)

    # Noise falls as epsilon grows.
    place = bisect_left(_EPSILONS, 1, key=lambda budget: int(planned(budget).answered))
    if place < len(_EPSILONS):
        return planned(_EPSILONS[place])
    most = planned(MOST).forecast
    hard = max(wants, key=lambda each: each.reach(most) / each.within)
    raise BudgetError(said("answer.no_epsilon", most=MOST, want=hard.text))
