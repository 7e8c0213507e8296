"""The synthesizer as scikit-learn's tools meet it: stores, clones, reports and changes its settings."""

from __future__ import annotations

import inspect
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import sklar
from sklar.budget.ledger import Ledger
from sklar.errors import BudgetError, ModelError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from tests.conftest import refuses

SCHEMA = Schema.from_toml('[table]\nname = "t"\n[attributes.x]\ntype = "boolean"\n[attributes.y]\ntype = "boolean"')
ROWS = pl.DataFrame({"x": [True, False] * 50, "y": [True, True, False, False] * 25})


def test_the_constructor_only_stores() -> None:
    odd = sklar.Synthesizer("no such file", epsilon=-1, method="magic")
    assert (odd.schema, odd.epsilon, odd.method) == ("no such file", -1, "magic")
    refuses("does not exist", odd.fit, ROWS, error=sklar.SchemaError)
    refuses("method must be one of", odd.set_params(schema=SCHEMA, epsilon=1.0).fit, ROWS, error=BudgetError)


def test_its_settings_are_those_of_fit() -> None:
    ours = inspect.signature(sklar.Synthesizer).parameters
    theirs = inspect.signature(sklar.fit).parameters
    # A table of Spark chooses its engine by itself; a checkpoint is for folders too large to count in one go; a query
    # says where the data come from; a file to go on from belongs to one call.
    assert set(theirs) - set(ours) == {"data", "progress", "engine", "checkpoint", "query", "keep"}
    for name, setting in ours.items():
        if name != "schema":
            assert setting.default == theirs[name].default


def test_fit_and_sample() -> None:
    synthesizer = sklar.Synthesizer(SCHEMA, epsilon=5.0)
    assert synthesizer.fit(ROWS) is synthesizer
    assert (synthesizer.feature_names_in_, synthesizer.n_features_in_) == (("x", "y"), 2)
    assert synthesizer.sample(seed=4).height == 100
    assert synthesizer.sample(9, seed=4).equals(synthesizer.model_.sample(9, seed=4))
    assert isinstance(synthesizer.sample(9, to="pandas"), pd.DataFrame)


def test_clones_have_equal_settings_and_no_model_and_every_fit_is_charged(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    book = Ledger(tmp_path / "l.db")
    book.open_account("t", epsilon=2.0, delta=2**-30)
    fitted = sklar.Synthesizer(tmp_path / "s.toml", Budget(epsilon=1.0), ledger=tmp_path / "l.db").fit(ROWS, None)
    assert fitted.model_.schema == SCHEMA
    copy = clone(fitted)
    assert copy is not fitted
    assert copy.get_params() == fitted.get_params()
    refuses(r"no model yet. Call fit first.", copy.sample, 3, error=ModelError)
    copy.fit(ROWS)
    assert len(book.account("t").charges) == 2


def test_settings_by_name() -> None:
    synthesizer = sklar.Synthesizer(SCHEMA, epsilon=2.0)
    assert synthesizer.set_params(epsilon=3.0, dataset="t") is synthesizer
    assert (synthesizer.epsilon, synthesizer.dataset) == (3.0, "t")
    assert synthesizer.get_params(deep=False)["epsilon"] == 3.0
    with pytest.raises(ModelError, match=r"Synthesizer has no setting 'eps'. Its settings are schema, budget, epsilon"):
        synthesizer.set_params(eps=1.0)


def test_its_representation_shows_what_was_set() -> None:
    assert repr(sklar.Synthesizer(SCHEMA, epsilon=2.0)) == "Synthesizer(schema='<t>', epsilon=2.0)"
    assert repr(sklar.Synthesizer("s.toml", epsilon=1, method="mixture")) == (
        "Synthesizer(schema='s.toml', epsilon=1, method='mixture')"
    )
