"""`fit` and `sample` as an object that follows scikit-learn's conventions, without depending on scikit-learn."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from sklar.answer import DEFAULT_LEVEL
from sklar.budget.ledger import Ledger
from sklar.budget.method import Method
from sklar.errors import ModelError
from sklar.kernel.theorems import Budget, Composition, Mechanism, Neighbors
from sklar.public.schema import Schema, SchemaLike
from sklar.release import fit

if TYPE_CHECKING:
    from sklar.answer.condition import Given
    from sklar.answer.infer import Inference
    from sklar.files.model import Model
    from sklar.files.write import Library


class Synthesizer:
    """A release that is set up first, then fitted to a table, then sampled as often as wanted.

    The constructor only stores; settings mean what they mean for `sklar.fit`, and are checked by `fit`. `schema` may
    also be the path of a schema file. Every `fit` spends its budget anew; `sample` spends nothing.

    >>> import polars as pl
    >>> schema = Schema.from_toml('[attributes.smoker]\\ntype = "boolean"')
    >>> synthesizer = Synthesizer(schema, epsilon=1.0).fit(pl.DataFrame({"smoker": [True, False] * 500}))
    >>> synthesizer.sample(3, seed=7).height
    3
    """

    model_: Model
    feature_names_in_: tuple[str, ...]
    n_features_in_: int

    def __init__(
        self,
        schema: SchemaLike,
        budget: Budget | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        neighbors: Neighbors | None = None,
        method: Method | str | None = None,
        preset: Literal["paper"] | None = None,
        dummies: bool = False,
        mechanism: Mechanism | None = None,
        composition: Composition | None = None,
        ledger: Ledger | str | Path | None = None,
        dataset: str | None = None,
        anyway: bool = False,
    ) -> None:
        self.schema = schema
        self.budget = budget
        self.epsilon = epsilon
        self.delta = delta
        self.neighbors = neighbors
        self.method = method
        self.preset = preset
        self.dummies = dummies
        self.mechanism = mechanism
        self.composition = composition
        self.ledger = ledger
        self.dataset = dataset
        self.anyway = anyway

    def fit(self, X: object, y: object = None) -> Self:  # noqa: N803, ARG002
        """Measure a table once and fit a model to it: a path, or whatever exports an Arrow stream. `y` is not used."""
        settings = self.get_params()
        described = Schema.of(settings.pop("schema"))
        self.model_ = fit(X, described, **settings)
        self.feature_names_in_ = tuple(described.columns)
        self.n_features_in_ = len(described.columns)
        return self

    def sample(
        self, n: int | None = None, *, given: Given | None = None, seed: int | None = None, to: Library = "polars"
    ) -> Any:
        """Draw `n` synthetic rows (as many as the original has, unless told) as `Model.sample` does."""
        draw: Any = self._fitted().sample
        return draw(n, given=given, seed=seed, to=to)

    def infer(self, question: str, *, level: float = DEFAULT_LEVEL, target: str | None = None) -> Inference:
        """Answer a question about the table as `Model.infer` does."""
        return self._fitted().infer(question, level=level, target=target)

    def _fitted(self) -> Model:
        if not self.__sklearn_is_fitted__():
            raise ModelError("this Synthesizer has no model yet. Call fit first.")
        return self.model_

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002
        """The settings that the constructor was given, by name."""
        return {name: getattr(self, name) for name in _settings()}

    def set_params(self, **params: Any) -> Self:
        """Change settings; the next `fit` uses them."""
        unknown = sorted(set(params) - set(_settings()))
        if unknown:
            raise ModelError(f"Synthesizer has no setting '{unknown[0]}'. Its settings are {', '.join(_settings())}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __repr__(self) -> str:
        defaults: Mapping[str, Any] = {name: known.default for name, known in _settings().items()}
        shown = {name: value for name, value in self.get_params().items() if value != defaults[name]}
        if isinstance(self.schema, Schema):
            shown["schema"] = f"<{self.schema.name}>"
        return f"Synthesizer({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def _settings() -> Mapping[str, inspect.Parameter]:
    return inspect.signature(Synthesizer).parameters
