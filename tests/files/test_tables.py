"""Noisy tables as Parquet: the same tables come back, others' are marked as claimed, odd files are refused."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sklar
from sklar.answer.report import publishable
from sklar.errors import ModelError, SchemaError
from sklar.files.archive import load
from sklar.files.model import Model, fit_tables
from sklar.files.tables import KEY, read_tables, write_tables
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.trust.verify import verify_model
from tests.cli.conftest import call

SCHEMA = Schema.load(Path(__file__).with_name("smokers.toml"))


def rows_of(n: int = 2000) -> pa.Table:
    generator = np.random.default_rng(2)
    return pa.table(
        {
            "smoker": generator.random(n) < 0.3,
            "age group": generator.integers(0, 66, n),
            "city": generator.choice(["Bern", "Basel", "Chur"], n),
        }
    )


@pytest.fixture(scope="module")
def model() -> Model:
    return sklar.fit(rows_of(), SCHEMA, epsilon=2.0, method="mixture")


@pytest.fixture
def exported(model: Model, tmp_path: Path) -> Path:
    write_tables(model.measured, tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def edited(path: Path, change: Any = None, metadata: Any = None) -> Path:
    """The same file with its rows, as a list of dictionaries, or its JSON changed."""
    table = pq.read_table(path)
    document = json.loads(pq.read_metadata(path).metadata[KEY.encode()])
    if metadata is not None:
        metadata(document)
    rows = table.to_pylist() if change is None else change(table.to_pylist())
    schema = pa.schema(
        [pa.field(f.name, pa.float64() if f.name == "value" else f.type) for f in table.schema],
        metadata={KEY: json.dumps(document)},
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "mixture", "budget": Budget(epsilon=2.0)},
        {"method": "binary", "budget": Budget(epsilon=2.0)},
        {"method": "mixture", "budget": Budget(epsilon=2.0, mechanism="laplace")},
        {"method": "mixture", "budget": Budget(epsilon=2.0, neighbors="add-remove")},
    ],
)
def test_tables_come_back_as_they_were_and_give_the_same_model(settings: Any, tmp_path: Path) -> None:
    original = sklar.fit(rows_of(), SCHEMA, **settings)
    write_tables(original.measured, tmp_path / "t.parquet")
    measured = read_tables(tmp_path / "t.parquet", SCHEMA)
    # Three-way tables, which a release may choose, distances and moments are in the model file alone.
    blocks = tuple(block for block in original.measured.blocks if getattr(block.query, "order", 3) < 3)
    own = replace(original.measured, blocks=blocks)
    assert own.n_rows == measured.n_rows
    for ours, read in zip(own.blocks, measured.blocks, strict=True):
        assert np.array_equal(ours.values, read.values)
        assert np.array_equal(ours.scales, read.scales)
    again = fit_tables(measured, method=settings["method"])
    assert again.sample(500, seed=1).equals(fit_tables(own, method=settings["method"]).sample(500, seed=1))
    lines = tuple(each for each in original.certificate.measurements if each.order < 3 and not each.kind)
    assert again.certificate.measurements == lines
    assert original.certificate.claimed_by is None
    assert again.certificate.claimed_by == f"sklar {sklar.__version__}"


def test_a_single_attribute_has_no_pairs(tmp_path: Path) -> None:
    schema = Schema.from_toml('[attributes.smoker]\ntype = "boolean"')
    write_tables(sklar.fit(rows_of(), schema, epsilon=1.0).measured, tmp_path / "t.parquet")
    assert [each.query.n_cells for each in read_tables(tmp_path / "t.parquet", schema).blocks] == [2]


def test_what_is_read_is_marked_as_claimed_everywhere(model: Model, exported: Path, tmp_path: Path) -> None:
    assert model.summary()[1].startswith("Privacy spent: epsilon = ")
    assert "laimed" not in publishable(model)
    model = fit_tables(read_tables(exported, SCHEMA), method="binary")
    model.save(tmp_path / "m.sklar")
    model = load(tmp_path / "m.sklar")
    assert model.summary()[1].startswith("Privacy claimed by the caller, not checked (measured by 'sklar ")
    found = verify_model(model)
    assert found.passed
    assert found.independent_epsilon is None
    privacy = next(check.detail for check in found.checks if check.name == "privacy")
    assert privacy.startswith("claimed by the caller, not checked: epsilon ")
    assert any(line.startswith("is claimed by the caller ('sklar ") for line in found.lines())
    assert found.verdict == "not verified"
    assert "learns little" not in "\n".join(found.lines())
    page = publishable(model)
    assert "Claimed by the caller, not checked." in page
    assert "(claimed) · δ" in page


def test_another_systems_tables_in_plain_texts_and_real_values(tmp_path: Path) -> None:
    """Written as a stranger would: no dictionaries, any order, either attribute first, floats, pure epsilon."""
    rows: list[tuple[Any, ...]] = []
    generator = np.random.default_rng(3)
    names = ["city", "smoker", "age group"]
    levels = {name: SCHEMA.attribute(name).levels for name in names}
    for i, one in enumerate(names):
        rows += [(1, one, a, None, None, 500.25 + generator.normal(), 3.0) for a in levels[one]]
        for two in names[i + 1 :]:
            rows += [(1, one, a, two, b, 100.5 + generator.normal(), 7.0) for a in levels[one] for b in levels[two]]
    rows = [rows[place] for place in generator.permutation(len(rows))]
    columns = ["stage", "attribute", "level", "attribute_2", "level_2", "value", "scale"]
    claim = {"by": "Another <System> 3.1", "epsilon": 1, "delta": 0, "neighbors": "replace-one", "mechanism": "laplace"}
    document = {"format": "sklar-tables", "version": 1, "rows": 1500, "certificate": claim}
    table = pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(document)}), tmp_path / "t.parquet")
    model = fit_tables(read_tables(tmp_path / "t.parquet", SCHEMA), method="mixture")
    assert model.sample(seed=1).height == 1500
    assert model.certificate.rounded
    assert "values rounded to whole counts" in model.summary()[1]
    assert model.estimate("smoker").counts.shape == (2,)
    page = publishable(model)
    assert "Another &lt;System&gt; 3.1" in page
    assert "rounded to whole counts" in page


STATED = tomllib.loads(Path(__file__).with_name("tables.toml").read_text())


def without(**wanted: Any) -> Any:
    return lambda rows: [row for row in rows if any(row[key] != value for key, value in wanted.items())]


def first(**changed: Any) -> Any:
    return lambda rows: [rows[0] | changed, *rows[1:]]


CELLS: list[tuple[Any, str]] = [
    *(({"first": first, "without": without}[how](**of), why) for how, of, why in STATED["cells"]),
    (without(attribute="city", attribute_2=None), "stage 1: the table of 'city' is missing. A stage must hold all one"),
    (lambda rows: [r for r in rows if r["attribute_2"] is None and r["stage"] == 1], "it holds no two-way tables."),
    (lambda rows: [r for r in rows if r["attribute_2"] is not None], "it holds no one-way tables."),
    (lambda rows: rows + rows[:1], "stage 1 holds a cell twice."),
    (lambda rows: rows * 2, "stage 1 has"),
    (lambda rows: [], "its stages must be numbered 1, 2, ..., got []"),
    (lambda rows: [row | {"stage": 3} for row in rows], "its stages must be numbered 1, 2, ..., got [3]"),
    (first(stage=None), "a row has no stage."),
    (first(scale=None), "scales must be positive numbers."),
    (first(value=None), "a cell has no value."),
    (first(level=None), "'attribute' and 'level' must be given together"),
    (first(attribute=None, level=None), "it holds a noisy number of rows, which is measured only where that is not"),
    (first(attribute=None, level=None, attribute_2="city", level_2="Bern"), "a second attribute and no first"),
]


@pytest.mark.parametrize(("change", "message"), CELLS)
def test_incomplete_and_forged_cells_are_refused(exported: Path, change: Any, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_tables(edited(exported, change), SCHEMA)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"'{exported}' is not a usable file of noisy tables: ")


FORGED = STATED["forged"] + [
    ("certificate", {"by": "x" * 201}, "its certificate.by must be a text of 1 to 200 printable characters"),
    ("", {"rows": None}, "under replace-one its number of rows must be stated and at least 1, got None."),
    ("", {"certificate": None}, "its certificate is not readable (TypeError"),
]


@pytest.mark.parametrize(("part", "changed", "message"), FORGED)
def test_forged_descriptions_are_refused(exported: Path, part: str, changed: Any, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_tables(edited(exported, metadata=lambda d: (d[part] if part else d).update(changed)), SCHEMA)
    assert message in str(caught.value)


def test_other_files_are_refused(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tables file '.*none.parquet' does not exist"):
        read_tables(tmp_path / "none.parquet", SCHEMA)
    whole, metadata = exported.read_bytes(), {KEY: pl.read_parquet_metadata(exported)[KEY]}
    table = pq.read_table(exported).replace_schema_metadata(metadata)

    def column(name: str, values: list[Any]) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, pa.array(values))

    n = table.num_rows
    wrong: list[tuple[bytes | pa.Table, str]] = [
        (b"not Parquet", r"is not a Parquet file, or it is damaged \(ComputeError\)"),
        (whole[: len(whole) // 2] + whole[-len(whole) // 4 :], "file"),
        (rows_of(), "its metadata has no key 'sklar.tables'"),
        (rows_of().replace_schema_metadata(metadata), "its columns must be stage, attribute"),
        (column("value", ["1"] * n), "its column 'value' must hold numbers, got"),
        (column("level", [1] * n), "its column 'level' must hold texts, got"),
        (column("level", [f"{'x' * 100_000}{i}" for i in range(n)]), "its columns are larger than its schema implies"),
        (pa.concat_tables([table] * 300), "more than 100 stages of this schema's tables"),
    ]
    for content, message in wrong:
        if isinstance(content, bytes):
            exported.write_bytes(content)
        else:
            pq.write_table(content, exported)
        with pytest.raises(ModelError, match=message):
            read_tables(exported, SCHEMA)


def test_the_schema_must_be_reviewed_and_determined_attributes_have_no_table(exported: Path) -> None:
    drafted = Schema.from_toml(SCHEMA.to_toml().replace('type = "boolean"', 'type = "boolean"\nreviewed = false'))
    with pytest.raises(SchemaError, match="not reviewed: smoker"):
        read_tables(exported, drafted)
    rule = {"attribute": "smoker", "determined_by": "city", "map": {"Bern": True, "Basel": False, "other": False}}
    ruled = Schema.from_dict(SCHEMA.to_dict() | {"rules": [rule]})
    edited(exported, metadata=lambda document: document.pop("schema_sha256"))
    with pytest.raises(ModelError, match="Leave out 'smoker', which a rule determines"):
        read_tables(exported, ruled)
    edited(exported, lambda rows: [row for row in rows if row["attribute_2"] is None])
    with pytest.raises(ModelError, match=r"'smoker' is determined by 'city' and has no table\. Leave its tables out"):
        read_tables(exported, ruled)


def test_the_command_line_exports_and_fits(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.sklar")
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    assert "No privacy was spent." in call("tables", "m.sklar", "--out", "t.parquet", cwd=tmp_path).output
    given = ("fit", "--tables", "t.parquet", "--schema", "s.toml", "--model", "again.sklar", "--method", "mixture")
    assert "Privacy claimed by the caller, not checked" in call(*given, cwd=tmp_path).output
    # Not the model's own rows: it may have a three-way table too, which noise decides and no file of tables holds.
    again = fit_tables(read_tables(tmp_path / "t.parquet", SCHEMA), method="mixture")
    assert load(tmp_path / "again.sklar").sample(200, seed=1).equals(again.sample(200, seed=1))
    assert "claimed by the caller, not checked" in call("verify", "again.sklar", cwd=tmp_path, code=3).output
