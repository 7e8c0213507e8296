"""The custodian's report: complete, and marked private wherever one looks."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from markupsafe import escape

from sklar.answer.report.render import clean
from sklar.cli import cli
from sklar.custodian.evaluate import NOTICE, Evaluation, answer, choose_triples, compare, evaluate
from sklar.custodian.evaluate.private_report import view
from sklar.public.schema import Attribute, Schema
from tests.answer.report.html import EVIL, check_escaped, read
from tests.custodian.evaluate.tables import SCHEMA, dummies, records


def reported(*tables: Any, **settings: Any) -> tuple[Evaluation, str]:
    """An evaluation and its report."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "PRIVATE.html"
        return evaluate(*tables, report=path, **settings), path.read_text(encoding="utf-8")


def test_every_part_is_there_and_says_private() -> None:
    real, synthetic = records(600), records(500, seed=2)
    _, document = reported(real, synthetic, SCHEMA)
    text = " ".join(read(document).text)
    for part in (
        "What to use, and what not",
        "Column by column, real beside synthetic",
        "Raw values of numbers",
        "Missing values and texts",
        "Errors of counts",
        "Distribution of errors",
        "Attribute by attribute",
        "Pair by pair",
        "side by side",
    ):
        assert part in text
    assert "<title>PRIVATE" in document
    assert document.count("PRIVATE: do not publish") == document.count("<section")
    assert document.count(escape(NOTICE)) == 2
    assert "Synthetic counts are scaled" in text
    # Fixed on screen and on every printed page.
    assert ".banner.top{position:fixed" in document


def test_the_figures_are_those_of_the_evaluation() -> None:
    real, synthetic = records(600), records(600, seed=2)
    found, document = reported(real, synthetic, SCHEMA)
    tv = found.result("two-way").tv
    assert tv is not None
    assert f"{tv:.4f}" in document


def test_what_is_shown_does_not_print_its_counts() -> None:
    real, synthetic = (answer(records(600, seed), SCHEMA, choose_triples(SCHEMA)) for seed in (0, 2))
    shown = view(compare(real, synthetic), real, synthetic)
    for each in (shown, shown["pairs"], shown["pairs"]["worst"][0]):
        assert repr(each) == "Hidden(private)"


def test_dummies_are_compared_too() -> None:
    real, synthetic = records(300), dummies(300)
    _, document = reported(real, synthetic, SCHEMA)
    read(document)
    assert "Valid records" in document


def test_learning_is_reported() -> None:
    pytest.importorskip("sklearn")
    real, synthetic, test = records(300), records(300, seed=2), records(100, seed=3)
    _, document = reported(real, synthetic, SCHEMA, target="a", test=test)
    read(document)
    assert "Trained on synthetic rows, tested on real ones" in document


@pytest.mark.parametrize("evil", EVIL)
def test_names_and_values_cannot_break_out(evil: str) -> None:
    pytest.importorskip("sklearn")
    schema = Schema(
        name=evil,
        attributes=(
            Attribute(name=evil, kind="categorical", values=(evil, "b")),
            Attribute(name="x", kind="categorical", values=("'", '"')),
        ),
    )
    table = pl.DataFrame({evil: [evil, "b"] * 30, "x": ["'", "'", '"'] * 20})
    _, document = reported(table, table, schema, target=evil, test=table)
    check_escaped(document, evil)
    # A control: what is looked for is there, in the heading, the tables, the pictures and the scores.
    assert document.count(str(escape(clean(evil)))) > 10


@pytest.mark.parametrize("name", ["PRIVATE.html", "report.html"])
def test_the_command_warns_of_a_name_that_does_not_say_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    for file, seed in (("real.csv", 0), ("syn.csv", 2)):
        records(200, seed=seed).write_csv(tmp_path / file)
    paths = [str(tmp_path / each) for each in ("real.csv", "syn.csv")]
    arguments = ["evaluate", *paths, "--schema", str(tmp_path / "s.toml"), "--report", str(tmp_path / name)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert f"PRIVATE as well: {tmp_path / name}" in done.stdout
    assert ("Its name does not say so: consider" in done.stdout) == (name == "report.html")
    read((tmp_path / name).read_text(encoding="utf-8"))


HEAPED = Schema(
    name="heaped",
    attributes=(
        Attribute(name="gain", kind="integer", edges=(0, 5_000, 100_000)),
        Attribute(name="hours", kind="integer", edges=(0, 100)),
    ),
)


def heaped() -> tuple[pl.DataFrame, pl.DataFrame]:
    zeros = pl.DataFrame({"gain": [0] * 450 + list(range(5_000, 55_000, 1_000)), "hours": [40, 41] * 250})
    return zeros, zeros.with_columns(gain=pl.when(pl.col("gain") == 0).then(pl.int_range(500) * 9).otherwise("gain"))


def test_lost_zeros_are_told_first_and_drawn() -> None:
    real, synthetic = heaped()
    found, document = reported(real, synthetic, HEAPED)
    read(document)
    assert found.verdict is not None
    assert found.verdict.unusable == ("gain",)
    assert "; 1 of 2 numbers has KS above 0.1: do not use it as a number (gain);" in found.verdict.line
    line = str(escape(found.verdict.line))
    assert document.index(line) < document.index("<section")
    assert "exactly 0: 0.2% for 90.0%" in document
    assert document.index("Numbers of gain, heaps apart") < document.index("Numbers of hours")
    for table in ("Quantiles", "Heaps: shares", "Round numbers: shares", "Pairs that differ most"):
        assert f"<caption>{table}" in document


def test_every_column_is_drawn() -> None:
    real, synthetic = records(300), records(300, seed=2)
    _, document = reported(real, synthetic, SCHEMA)
    for attribute in SCHEMA.attributes:
        what = "Numbers" if attribute.kind == "integer" else "Levels"
        assert f"<title>{what} of {attribute.name}" in document


def test_dummies_are_drawn_by_levels() -> None:
    real, synthetic = records(300), dummies(300)
    _, document = reported(real, synthetic, SCHEMA)
    assert "<title>Levels of c" in document
    assert "Raw values of numbers" not in document


@pytest.mark.parametrize("evil", EVIL)
def test_texts_among_numbers_cannot_break_out(evil: str) -> None:
    schema = Schema(name="t", attributes=(Attribute(name=evil, kind="integer", edges=(0, 10)),))
    table = pl.DataFrame({evil: ["1", evil, "2", evil]})
    _, document = reported(table, table, schema)
    check_escaped(document, evil)
    assert document.count(str(escape(clean(evil)))) > 3


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_the_report_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA.to_toml())
    records(60).write_csv(tmp_path / "real.csv")
    out = tmp_path / "PRIVATE.html"
    out.write_text("an old report that all may read")
    out.chmod(0o644)
    before = os.umask(umask)
    try:
        arguments = ["evaluate", str(tmp_path / "real.csv"), str(tmp_path / "real.csv"), "--report", str(out)]
        done = CliRunner().invoke(cli, [*arguments, "--schema", str(tmp_path / "s.toml"), "--quiet"])
    finally:
        os.umask(before)
    assert done.exit_code == 0, done.output
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {"s.toml", "real.csv", "PRIVATE.html"}


def test_a_table_that_is_written_otherwise_is_compared_with_a_plain_release(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[table]\nname = "t"\ndelimiter = ";"\ndecimal = ","\n[attributes.x]\ntype = "real"\nedges = [0, 1, 2]\n'
        '[attributes.y]\ntype = "integer"\nedges = [0, 5, 10]\n'
    )
    (tmp_path / "real.csv").write_text("x;y\n0,5;1\n1,25;7\n0,75;3\n")
    (tmp_path / "syn.csv").write_text("x,y\n0.5,1\n1.25,7\n0.75,3\n")
    paths = [str(tmp_path / name) for name in ("real.csv", "syn.csv")]
    arguments = ["--schema", str(tmp_path / "s.toml"), "--report", str(tmp_path / "PRIVATE.html"), "--json"]
    done = CliRunner().invoke(cli, ["evaluate", *paths, *arguments])
    assert done.exit_code == 0, done.output
    column = json.loads(done.stdout)["columns"][0]
    assert column["numbers"]["ks"] == 0
    assert column["numbers"]["real"]["mean"] == pytest.approx(2.5 / 3)
    read((tmp_path / "PRIVATE.html").read_text(encoding="utf-8"))
