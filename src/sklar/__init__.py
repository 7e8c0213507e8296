"""Sklar: differentially private synthetic versions of high-dimensional tables, with a Gaussian copula.

>>> import sklar
>>> schema = sklar.Schema.from_toml('''
... [attributes.smoker]
... type = "boolean"
... ''')
>>> import polars as pl
>>> model = sklar.fit(pl.DataFrame({"smoker": [True, False] * 500}), schema, epsilon=1.0)
>>> model.sample(3, seed=7).height
3
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklar.answer.wants import plan
    from sklar.budget.certificate import Certificate, Measured
    from sklar.budget.forecast import forecast
    from sklar.budget.method import Method
    from sklar.custodian.check import check
    from sklar.custodian.compare import compare
    from sklar.custodian.draft import draft
    from sklar.custodian.evaluate import evaluate
    from sklar.errors import (
        BudgetError,
        DataError,
        LedgerError,
        MissingExtraError,
        ModelError,
        NoiseError,
        OutputError,
        SchemaError,
        SklarError,
    )
    from sklar.files.archive import load, resume
    from sklar.files.model import Model, TreeModel, fit_tables, infer, query, report
    from sklar.files.tables import write_tables
    from sklar.kernel.queries import Block
    from sklar.kernel.theorems import Budget
    from sklar.public.schema import Attribute, Schema
    from sklar.public.tree import Tree
    from sklar.release import fit, measure
    from sklar.synthesizer import Synthesizer
    from sklar.trust.verify import verify

__all__ = [
    "Attribute", "Block", "Budget", "BudgetError", "Certificate", "DataError", "LedgerError", "Measured", "Method",
    "MissingExtraError", "Model", "ModelError", "NoiseError", "OutputError", "Schema", "SchemaError", "SklarError",
    "Synthesizer", "Tree", "TreeModel", "check", "compare", "draft", "evaluate", "fit", "fit_tables", "forecast",
    "infer", "load", "measure", "plan", "query", "report", "resume", "verify", "write_tables",
]  # fmt: skip

# Where names live. Loaded on first use: `import sklar` and `sklar --help` must not wait for numba or Arrow.
_HOMES = {
    "answer.wants": "plan",
    "budget.certificate": "Certificate Measured",
    "budget.forecast": "forecast",
    "budget.method": "Method",
    "custodian.check": "check",
    "custodian.compare": "compare",
    "custodian.draft": "draft",
    "custodian.evaluate": "evaluate",
    "errors": "BudgetError DataError LedgerError MissingExtraError ModelError NoiseError OutputError SchemaError "
    "SklarError",
    "files.archive": "load resume",
    "files.model": "Model TreeModel fit_tables infer query report",
    "files.tables": "write_tables",
    "kernel.queries": "Block",
    "kernel.theorems": "Budget",
    "public.schema": "Attribute Schema",
    "public.tree": "Tree",
    "release": "fit measure",
    "synthesizer": "Synthesizer",
    "trust.verify": "verify",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("sklar")
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"sklar.{module}"), name)
    raise AttributeError(f"module 'sklar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
