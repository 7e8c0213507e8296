"""What releases of one data set have spent together, and what still fits: the journal's entries, read as an account.

**How releases add up.** A charge holds the noise scales of the whole release. `theorems.cost` turns them into two
currencies, zCDP and GDP. Both add up over releases even when a later release is chosen after looking at earlier ones,
as long as the limit was fixed before (zCDP: Whitehouse et al. 2023; GDP: Smith and Thakurta 2022). The chance that a
threshold fails (`Budget.less`) adds up, too, and comes off the total delta.

The third accountant, `sum`, adds up the releases' own (epsilon, delta). A minimum taken after the fact would not be a
limit fixed before, so the first charge of a data set decides, before anything is measured: the smaller of curve and
zCDP, unless that does not fit the total or is above `_DEARER` times the sum (a few tables of Laplace noise, which are
pure); then `sum`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sklar.kernel.theorems import ROUNDING, Budget, Cost, Neighbors, Spend, cost, curve_epsilon, zcdp_epsilon
from sklar.machine.wording import said

Accountant = Literal["curve", "zcdp", "sum"]
Unit = Literal["row", "person"]

_DEARER = 1.2
_WORDS = {"curve": "pooled on the Gaussian curve", "zcdp": "pooled as zCDP", "sum": "epsilons and deltas added up"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the journal, with the ledger's head after it."""

    number: int
    time: str
    kind: Literal["setup", "open", "charge", "bind", "adopt"]
    dataset: str
    body: dict[str, Any]
    head: str = ""

    @property
    def cost(self) -> Cost:
        """Of a charge."""
        groups = np.array(self.body["scales"], dtype=np.float64).reshape(-1, 3)
        return cost(self.body["mechanism"], Spend.of(*groups.T))

    @property
    def lost_delta(self) -> float:
        """Of a charge: the chance that a threshold fails."""
        return float(self.body.get("lost_delta", 0.0))

    def line(self) -> str:
        """In one line."""
        body = self.body
        if self.kind == "setup":
            parts = (f"the {name} {body[name]}" if body[name] else f"no {name}" for name in ("anchor", "key"))
            lost = " (the anchor before it was lost)" if body["lost"] else ""
            what = f"set up with {' and '.join(parts)}{lost}"
        elif self.kind == "open":
            what = said("budget.opened", **{"unit": "row"} | body)
        elif self.kind == "charge":
            shifts = 2 if body["neighbors"] == "replace-one" else 1
            tables = sum(float(moves) for _, moves, _ in body["scales"]) / shifts
            people = f", for people with up to {body['rows_per_person']:,} rows" if "rows_per_person" in body else ""
            what = said("budget.charged", **body, people=people, tables=round(tables))
        elif self.kind == "bind":
            what = f"bound to the contents of {len(body['files']):,} files"
        else:
            what = "the file was copied or restored, and put in force"
        return f"{self.number:>4}  {self.time}  {self.dataset or '-'}: {what}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the ledger's secret and what was made with it."""
        shown = {name: value for name, value in self.body.items() if name not in ("secret", "files")}
        place = {"number": self.number, "time": self.time, "kind": self.kind, "dataset": self.dataset}
        return place | shown | {"head": self.head}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A data set: its total, for any one row or any one person with all their rows (`unit`), and the charges so far.

    Costs of releases by row and by person do not add up, so an account takes those of its own unit only. Releases by
    person do, whatever `rows_per_person` each has: each costs what its own noise gives to a person's rows.
    """

    dataset: str
    epsilon: float
    delta: float
    neighbors: Neighbors
    unit: Unit = "row"
    charges: tuple[Entry, ...] = ()

    @property
    def accountant(self) -> Accountant | None:
        """What its first charge decided; None before."""
        return self.charges[0].body["accountant"] if self.charges else None

    @property
    def naive(self) -> tuple[float, float]:
        """The sums of the releases' own epsilons and deltas, for comparison."""
        epsilon, delta = (math.fsum(each.body[name] for each in self.charges) for name in ("epsilon", "delta"))
        return epsilon, delta

    @property
    def spent(self) -> float:
        """Epsilon of all charges together, at this data set's delta, by its accountant."""
        return self.epsilon_with(self.accountant or "curve", Cost(), 0.0, (0.0, 0.0))

    def lines(self) -> list[str]:
        """What was spent and what is left, in words."""
        naive, deltas = self.naive
        spent = ["  nothing spent"]
        if self.charges:
            way = _WORDS[self.accountant or "curve"]
            spent = [said("budget.spent", epsilon=self.spent, releases=len(self.charges), way=way)]
            spent.append(f"  the naive sum would be epsilon = {naive:.4g}, delta = {deltas:.3g}")
        own = {name: getattr(self, name) for name in ("dataset", "epsilon", "delta", "unit", "neighbors")}
        return [said("budget.total", **own), *spent, said("budget.left", epsilon=self.left, delta=self.delta)]

    @property
    def left(self) -> float:
        """About the largest epsilon, at this delta, of one more release of many Gaussian tables."""
        if not self.charges:
            return self.epsilon
        rows = None if self.unit == "row" else 1
        budget = Budget(epsilon=self.epsilon, delta=self.delta, neighbors=self.neighbors, rows_per_person=rows)
        # Of many tables, so that 4 units of variance are nothing.
        return largest_fitting(self, budget, budget.tables([1000.0], [1_000_000_000]))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        naive, deltas = self.naive
        own = {name: getattr(self, name) for name in ("dataset", "epsilon", "delta", "neighbors", "unit", "accountant")}
        spent = {"spent_epsilon": self.spent, "naive_epsilon": naive, "naive_delta": deltas}
        return own | {"releases": len(self.charges)} | spent | {"left_epsilon": self.left}

    def epsilon_with(self, accountant: Accountant, more: Cost, lost_delta: float, own: tuple[float, float]) -> float:
        """What would be spent with one more release of this cost, or of its own (epsilon, delta) for `sum`."""
        if accountant == "sum":
            epsilon, delta = self.naive
            return epsilon + own[0] if delta + own[1] <= self.delta * (1 + ROUNDING) else math.inf
        total = sum((entry.cost for entry in self.charges), more)
        amount = total.rho if accountant == "zcdp" else total.mu_squared
        if amount == 0 or not math.isfinite(amount):
            return amount
        lost = math.fsum([lost_delta, *(entry.lost_delta for entry in self.charges)])
        if lost >= self.delta:
            return math.inf
        # The same functions as a release's own epsilon, so that one release costs the same here and there.
        pooled = zcdp_epsilon if accountant == "zcdp" else curve_epsilon
        return pooled(amount, self.delta - lost) - math.log1p(-lost)


def accounts_of(entries: Sequence[Entry]) -> tuple[Account, ...]:
    """The data sets that a journal opened, each with its charges."""

    def charges(dataset: str) -> tuple[Entry, ...]:
        return tuple(entry for entry in entries if entry.kind == "charge" and entry.dataset == dataset)

    opened = (entry for entry in entries if entry.kind == "open")
    return tuple(Account(dataset=each.dataset, charges=charges(each.dataset), **each.body) for each in opened)


def own_cost(budget: Budget, spend: Spend) -> tuple[float, float]:
    """The epsilon of a release by itself, and the delta that it is stated at: none where pure epsilons add up to it."""
    epsilon = budget.spent(spend)
    sum_of_pure = float(np.sum(spend.moves * spend.reach / spend.scales))
    pure = budget.mechanism == "laplace" and sum_of_pure <= epsilon * (1 + ROUNDING)
    return epsilon, 0.0 if pure else budget.delta


def choose_accountant(account: Account, budget: Budget, spend: Spend) -> Accountant | None:
    """The accountant that counts this charge, None when it does not fit."""
    more, own = budget.cost(spend), own_cost(budget, spend)

    def total(accountant: Accountant) -> float:
        return account.epsilon_with(accountant, more, spend.lost_delta, own)

    limit = account.epsilon * (1 + ROUNDING)
    if account.accountant is not None:
        return account.accountant if total(account.accountant) <= limit else None
    pooled: tuple[Accountant, ...] = ("curve", "zcdp")
    best = min(pooled, key=total)
    if total("sum") <= limit and total(best) > min(_DEARER * total("sum"), limit):
        return "sum"
    return best if total(best) <= limit else None


def largest_fitting(account: Account, budget: Budget, spend: Spend) -> float:
    """About the largest epsilon of a release of the same shape (scales times one factor) that fits; 0 for none."""

    def fits(factor: float) -> bool:
        return choose_accountant(account, budget, spend * factor) is not None

    high = next((2.0**power for power in range(20) if fits(2.0**power)), 0.0)
    if not high:
        return 0.0
    low = high / 2
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    # Rounded down, with room for a plan whose shape is a little different at the smaller epsilon.
    exact = 0.999 * own_cost(budget, spend * high)[0]
    digits = 3 - math.floor(math.log10(exact)) if exact > 0 else 0
    return math.floor(exact * 10.0**digits) / 10.0**digits
