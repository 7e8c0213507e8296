"""Run times depend on rows (one value of 300 MB: 0.1 s became 1.3 s): only a terminal shows them unasked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sklar.cli import cli
from tests.guarantees.people import BASE, walk

SECONDS = re.compile(r"\d(\.\d+)? ?(s|ms|sec|seconds)\b", re.IGNORECASE)
RELEASE = ("release", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--method", "binary", "--out", "o.csv")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "t.csv").write_text("age,city\n" + "33,Bern\n" * 50)
    (tmp_path / "s.toml").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_log_file_holds_no_run_times(folder: Path) -> None:
    """What a release sends to anything but a terminal is the same, whatever the rows and however long they took."""
    logs = []
    for value in ("33", "7" * 3_000_000):
        (folder / "t.csv").write_text("age,city\n" + "33,Bern\n" * 49 + f"{value},Bern\n")
        done = CliRunner().invoke(cli, RELEASE)
        assert done.exit_code == 0, done.output
        # What this process compiled before is a fact of the machine, not of the rows.
        logs.append("".join(line for line in done.stderr.splitlines(True) if not line.startswith("compiling ")))
    assert logs[0] == logs[1] == "count: 50 rows\nmeasure: done\nfit: done\nsample: 50 rows\n"


def test_they_are_told_to_whoever_asks(folder: Path) -> None:
    done = CliRunner().invoke(cli, [*RELEASE, "--timings"])
    assert [bool(SECONDS.search(line)) for line in done.stderr.splitlines()] == [True] * 4
    assert CliRunner().invoke(cli, [*RELEASE, "--timings", "--quiet"]).stderr == ""


def test_json_model_and_report_hold_none(folder: Path) -> None:
    printed = CliRunner().invoke(cli, [*RELEASE, "--json", "--timings"]).stdout
    shown = CliRunner().invoke(cli, ["verify", "o.sklar", "--json"]).stdout
    names = [name for name, _ in walk([json.loads(printed), json.loads(shown)])]
    assert not [name for name in names if re.search("second|elapsed|duration|timing|took", name)]
    assert CliRunner().invoke(cli, ["report", "o.sklar", "--out", "r.html"]).exit_code == 0
    text = re.sub(r"<style.*?</style>|<svg.*?</svg>", "", (folder / "r.html").read_text(), flags=re.DOTALL)
    assert not SECONDS.search(re.sub(r"<[^>]*>", " ", text))
