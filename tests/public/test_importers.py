"""Importers: what a description states is taken over; what it does not is left open, and refused until filled in."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from sklar.errors import MissingExtraError, SchemaError
from sklar.public.importers import Imported, import_schema
from sklar.public.schema import Schema
from tests import public
from tests.conftest import refuses

DESCRIBED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("described.yaml").read_text())
SDV, FRICTIONLESS, SMARTNOISE, TRANSFORMERS = DESCRIBED.values()
HOTELS = {"hotels": {"primary_key": "guest_email", "columns": SDV["columns"]}}
BACKWARDS = {"name": "age", "type": "integer", "constraints": {"minimum": 9, "maximum": 1}}
SDV_TABLES = {"METADATA_SPEC_VERSION": "V1", "tables": HOTELS, "relationships": []}


def put(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def completed(found: Imported) -> Schema:
    """The schema once somebody has filled in what is open: until then it is refused."""
    text = found.to_toml()
    assert text.count("reviewed = false\n") == len(found.open)
    if found.open:
        with pytest.raises(SchemaError, match=rf"attribute '({'|'.join(map(re.escape, found.open))})': .* must list"):
            Schema.from_toml(text)
    text = text.replace("values = []\n", 'values = ["a", "b"]\n').replace("reviewed = false\n", "")
    dated = re.compile(r'(type = "date(?:time)?"\n(?:[a-z].*\n)*?)edges = \[\]')
    text = dated.sub(r'\1edges = ["2000-01-01", "2030-01-01"]', text)
    schema = Schema.from_toml(text.replace("edges = []", "edges = [0, 50, 100]"))
    assert schema.names == tuple(found.entries)
    return schema


@pytest.mark.parametrize("document", [SDV, SDV_TABLES, SDV_TABLES | {"METADATA_SPEC_VERSION": "MULTI_TABLE_V1"}])
def test_sdv(tmp_path: Path, document: dict[str, Any]) -> None:
    found = import_schema(put(tmp_path, "hotels.json", document))
    assert found.name == "hotels"
    assert found.open == ("room_type", "nights", "fee", "checkin", "paid_at")
    assert set(found.left_out) == {"guest_email", "card", "note"}
    schema = completed(found)
    kinds = ["boolean", "categorical", "categorical", "integer", "real", "date", "datetime"]
    assert [each.kind for each in schema.attributes] == kinds
    _, _, size, nights, _, checkin, paid_at = schema.attributes
    assert (size.values, size.ordered, nights.output) == (("S", "M", "L"), True, "int8")
    assert (checkin.format, paid_at.format) == ("%d %b %Y", None)


def test_frictionless(tmp_path: Path) -> None:
    found = import_schema(put(tmp_path, "people.json", FRICTIONLESS))
    assert found.name == "people"
    assert found.open == ("city", "seen")
    assert set(found.left_out) == {"id", "place"}
    schema = completed(found)
    age, rooms, income, sex, size, code, _, born, _, _, *others = schema.attributes
    assert (age.edges[0], age.edges[-1], age.n_values, age.missing) == (0, 120, 20, "NA")
    assert (rooms.edges, rooms.missing) == (tuple(range(1, 10)), None)
    assert (income.edges[0], income.edges[-1]) == (0.0, 1e6)
    assert (sex.values, size.values, size.ordered) == (("F", "M"), ("S", "L"), True)
    assert (code.values, code.output) == ((1, 2), "category")
    assert [born.axis.text(edge) for edge in (born.edges[0], born.edges[-1])] == ["1900-01-01", "2025-01-01"]
    assert schema.reading.nulls == ("-",)
    since, month, at, took, died, well, pay = others
    assert [each.kind for each in others[:5]] == ["year", "yearmonth", "time", "duration", "date"]
    assert (since.levels[0], since.levels[-1], since.missing) == ("1990", "1999", None)
    assert (month.levels[0], month.levels[-2], month.missing) == ("2000-01", "2000-12", "NA")
    assert (at.format, at.axis.text(at.edges[-1])) == ("%H:%M", "24:00:00")
    assert took.axis.text(took.edges[-1]) == "1:00:01"
    assert (died.format, well.texts) == ("%d.%m.%Y", ("N", "Y"))
    assert (pay.missing, pay.special) == ("NA", (-9,))
    assert "# Texts of the form '%d/%m/%Y' are not read as a datetime: convert the column first." in found.to_toml()
    assert "# The description has '-9' for missing too: each is a special value here." in found.to_toml()


def test_frictionless_in_a_resource_and_a_package(tmp_path: Path) -> None:
    resource = {"name": "people", "path": "people.csv", "schema": FRICTIONLESS}
    for document in (resource, {"name": "study", "resources": [resource]}):
        found = import_schema(put(tmp_path, "datapackage.json", document))
        assert (found.name, found.open) == ("people", ("city", "seen"))


def test_smartnoise_metadata(tmp_path: Path) -> None:
    found = import_schema(put(tmp_path, "meta.yaml", SMARTNOISE))
    assert (found.name, found.open) == ("PUMS", ("sex", "seen", "weight"))
    assert found.left_out == {"pid": "it identifies a row or a person"}
    age, income = completed(found).attributes[:2]
    assert (age.edges[-1], age.missing) == (101, "")
    assert (income.edges[-1], income.missing) == (500_000.0, None)
    assert "# SmartNoise was told to put '?' where a value is missing." in found.to_toml()


def test_smartnoise_transformers(tmp_path: Path) -> None:
    found = import_schema(put(tmp_path, "t.json", TRANSFORMERS))
    assert set(found.left_out) == {"id", "job"}
    # The bounds behind a logarithm are not those of the column.
    assert found.open == ("income", "sex")
    age, weight, _, sex = completed(found).attributes
    assert age.edges[-1] == 100.0
    assert (weight.edges[0], weight.edges[-1], weight.n_values) == (10.0, 200.0, 25)
    assert (sex.kind, sex.missing) == ("categorical", "")


ARROW: list[tuple[str, pa.DataType, dict[str, Any] | None]] = [
    ("price", pa.decimal128(10, 2), {"type": "real", "output": "decimal(10, 2)"}),
    ("ratio", pa.float32(), {"type": "real", "output": "float32"}),
    ("city", pa.dictionary(pa.int8(), pa.string()), {"type": "categorical", "output": "category"}),
    ("size", pa.dictionary(pa.int8(), pa.string(), ordered=True), {"type": "categorical", "ordered": True}),
    ("zip", pa.large_string(), {"type": "categorical"}), ("smoker", pa.bool_(), {"type": "boolean"}),
    ("born", pa.date32(), {"type": "date"}),
    ("seen", pa.timestamp("us", "Asia/Tokyo"), {"type": "datetime", "output": "timestamp[us, tz=Asia/Tokyo]"}),
    ("at", pa.time32("s"), {"type": "time", "output": "time32[s]"}), ("took", pa.duration("us"), {"type": "duration"}),
    ("tags", pa.list_(pa.string()), None), ("__index_level_0__", pa.int64(), None),
]  # fmt: skip


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_arrow(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.{suffix}"
    fields = [pa.field("id", pa.int32(), nullable=False), *((name, kind) for name, kind, _ in ARROW)]
    empty = pa.schema(fields).empty_table()
    if suffix == "parquet":
        pq.write_table(empty, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, empty.schema) as writer:
            writer.write_table(empty)
    found = import_schema(path)
    stated = {name: keys | {"missing": ""} for name, _, keys in ARROW if keys is not None}
    stated["id"] = {"type": "integer", "output": "int32"}
    assert {name: entry.keys for name, entry in found.entries.items()} == stated
    assert set(found.left_out) == {"tags", "__index_level_0__"}
    assert found.open == tuple(name for name in found.entries if name != "smoker")


def test_no_row_and_no_statistic_of_a_parquet_file_is_read(tmp_path: Path) -> None:
    """The same names and types make the same import, whatever the rows."""
    texts = set()
    for values in ([1, 2, 3], [7], [None, 10**9]):
        rows = pa.table({"x": pa.array(values, pa.int64()), "y": ["secret"] * len(values)})
        pq.write_table(rows, tmp_path / "t.parquet")
        texts.add(import_schema(tmp_path / "t.parquet").to_toml())
    [text] = texts
    assert "secret" not in text


@pytest.mark.parametrize(("described", "message"), public.REFUSED["descriptions"])
def test_refusals(tmp_path: Path, described: str, message: str) -> None:
    name, _, content = described.partition(" ")
    path = put(tmp_path, name, content) if content else tmp_path / name
    with pytest.raises(SchemaError) as refused:
        import_schema(path).to_toml()
    assert message in str(refused.value)


def test_a_format_may_be_stated_and_must_be_known(tmp_path: Path) -> None:
    path = put(tmp_path, "x.json", SDV)
    assert import_schema(path, format="sdv").entries.keys() == import_schema(path).entries.keys()
    with pytest.raises(SchemaError, match="format must be one of arrow, frictionless, sdv, smartnoise, got 'xml'"):
        import_schema(path, format="xml")


def test_odd_names_and_notes_stay_one_line(tmp_path: Path) -> None:
    document = {"columns": {"a\n[x]": {"sdtype": "categorical"}, "b\nc": {"sdtype": "id"}}}
    found = import_schema(put(tmp_path, "x.json", document))
    assert "# Left out: 'b\\nc': it identifies" in found.to_toml()
    assert completed(found).names == ("a\n[x]",)


def test_yaml_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "meta.yaml", SMARTNOISE)
    monkeypatch.setitem(sys.modules, "yaml", None)
    refuses(r"a YAML file needs PyYAML: pip install 'sklar\[yaml\]'", import_schema, path, error=MissingExtraError)
