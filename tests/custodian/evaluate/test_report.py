"""The custodian's report: complete, and marked private wherever one looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sklar.cli import cli
from sklar.custodian.evaluate import NOTICE, evaluate
from sklar.custodian.evaluate.report import custodian_report
from tests.answer.report.html import read
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
    assert document.count(NOTICE.replace("'", "&#x27;")) == 2
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
