"""Which model a release fits, and so which tables it measures in how many stages: a public choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget

MethodName = Literal["auto", "mixture", "factor", "binary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How tables are measured and which model is fitted to them.

    `mixture` and `factor` are latent models over whole attributes; `auto` is the mixture. `binary` is the paper's
    copula over dummies. `paper` measures and reads tables as the paper does: equal shares, no consistency step.
    `dummies` gives the paper's 0/1 output instead of valid records.

    >>> Method.of("binary").name
    'binary'
    """

    name: MethodName = "auto"
    paper: bool = False
    dummies: bool = False

    def __post_init__(self) -> None:
        if self.name not in get_args(MethodName):
            raise BudgetError(f"method must be one of {', '.join(get_args(MethodName))}, got {self.name!r}.")
        if self.name != "binary" and (self.paper or self.dummies):
            raise BudgetError(f"the paper's preset and its dummies go with method 'binary', got method '{self.name}'.")

    @classmethod
    def of(cls, given: Method | str) -> Method:
        """The method that a caller gives, by value or by name."""
        return given if isinstance(given, Method) else cls(name=cast(MethodName, given))

    def budget_of(self, budget: Budget | None, epsilon: float | None) -> Budget:
        """The budget that a caller gives, or the one that an epsilon is the short form of."""
        if (budget is None) == (epsilon is None):
            raise BudgetError("give either a budget or an epsilon, for example epsilon=1.0.")
        if budget is not None:
            return budget
        noise = {"mechanism": "laplace", "composition": "advanced"} if self.paper else {}
        return Budget(epsilon=cast(float, epsilon), **noise)  # type: ignore[arg-type]


PAPER = Method(name="binary", paper=True)
