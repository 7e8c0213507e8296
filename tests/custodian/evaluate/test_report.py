"""The custodian's report: complete, and marked private wherever one looks."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from markupsafe import escape

from sklar.answer.report.render import clean
from sklar.cli import cli
from sklar.custodian.evaluate import NOTICE, answer, choose_triples, compare, evaluate
from sklar.custodian.evaluate.report import custodian_report, view
from sklar.public.schema import Attribute, Schema
from tests.answer.report.html import EVIL, check_escaped, read
from tests.custodian.evaluate.tables import SCHEMA, dummies, records


def test_every_part_is_there_and_says_private() -> None:
    real, synthetic = records(600), records(500, seed=2)
    document = custodian_report(evaluate(real, synthetic, SCHEMA), real, synthetic, SCHEMA)
    text = " ".join(read(document).text)
    for part in (
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
    found = evaluate(real, synthetic, SCHEMA)
    document = custodian_report(found, real, synthetic, SCHEMA)
    tv = found.result("two-way").tv
    assert tv is not None
    assert f"{tv:.4f}" in document


def test_what_is_shown_does_not_print_its_counts() -> None:
    real, synthetic = (answer(records(600, seed), SCHEMA, choose_triples(SCHEMA)) for seed in (0, 2))
    shown = view(compare(real, synthetic), real, synthetic)
    assert shown.pairs is not None
    for each in (shown, shown.pairs, shown.pairs.worst[0]):
        assert re.fullmatch(r"<[\w.]+ object at 0x[0-9a-f]+>", repr(each))


def test_dummies_are_compared_too() -> None:
    real, synthetic = records(300), dummies(300)
    document = custodian_report(evaluate(real, synthetic, SCHEMA), real, synthetic, SCHEMA)
    read(document)
    assert "Valid records" in document


def test_learning_is_reported() -> None:
    pytest.importorskip("sklearn")
    real, synthetic, test = records(300), records(300, seed=2), records(100, seed=3)
    found = evaluate(real, synthetic, SCHEMA, target="a", test=test)
    document = custodian_report(found, real, synthetic, SCHEMA)
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
    document = custodian_report(evaluate(table, table, schema, target=evil, test=table), table, table, schema)
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
