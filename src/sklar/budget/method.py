"""Which model a release fits, and so which tables it measures in how many stages: a public choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from sklar.budget.search import require_gaussian
from sklar.errors import BudgetError, SchemaError
from sklar.kernel.theorems import Budget
from sklar.machine.wording import said
from sklar.public.schema import Schema
from sklar.public.settings import budget_for

MethodName = Literal["auto", "mixture", "binary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How tables are measured and which model is fitted to them.

    `mixture` is a latent model over whole attributes, and `auto` the same. `binary` is the paper's copula over dummies.
    `paper` measures and reads tables as the paper does: equal shares, no consistency step. `dummies` gives the paper's
    0/1 output instead of valid records.
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
    def of(cls, given: Method | str | None, *, preset: str | None = None, dummies: bool = False) -> Method:
        """The method that a caller gives, by value or by name; the paper's `preset` and `dummies` are binary."""
        if preset not in (None, "paper"):
            raise BudgetError(f"preset must be 'paper' or left out, got {preset!r}.")
        if isinstance(given, Method):
            if preset or dummies:
                raise BudgetError("a Method states preset and dummies itself. Give them with a method's name only.")
            return given
        name = given or ("binary" if preset or dummies else "auto")
        return cls(name=cast(MethodName, name), paper=preset == "paper", dummies=dummies)

    def budget_of(self, budget: Budget | None, epsilon: float | None, **given: Any) -> Budget:
        """The budget that a caller gives, or that of an epsilon and what is `given` beside it, None where it is not: a
        delta, neighbors, a mechanism, a composition. The paper has defaults.
        """
        if (budget is None) == (epsilon is None):
            raise BudgetError("give either a budget or an epsilon, for example epsilon=1.0.")
        settings = {name: each for name, each in given.items() if each is not None}
        if budget is not None:
            if settings:
                raise BudgetError(f"a budget states its {next(iter(settings))} itself. Give it with an epsilon only.")
            return budget
        if self.paper:
            settings.setdefault("mechanism", "laplace")
            if settings["mechanism"] == "laplace":
                settings.setdefault("composition", "advanced")
        return Budget(epsilon=cast(float, epsilon), **settings)

    def budget_for(self, schema: Schema, budget: Budget) -> Budget:
        """The budget for the unit that the schema names; refused where schema, method and noise do not go together."""
        self.require(schema)
        budget = budget_for(schema.person, budget)
        require_gaussian(schema, budget)
        return budget

    def require(self, schema: Schema) -> None:
        """Refuse a schema of which this method fits no model."""
        if self.dummies and schema.rules:
            raise SchemaError(said("budget.rules_and_dummies"))
        if self.name == "binary":
            schema.require_square("method 'binary'")


PAPER = Method(name="binary", paper=True)
