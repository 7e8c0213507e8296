"""How the command line behaves among other tools: examples that run, JSON, silence, colors, completion, exit codes."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import duckdb
import polars
import pytest
from docs.reference import page

import sklar
from sklar.budget.ledger import Ledger
from sklar.cli import cli
from tests.cli.conftest import call, on_a_terminal, run

DOCS = Path(__file__).parents[2] / "docs"
LINES = tomllib.loads(Path(__file__).with_name("lines.toml").read_text())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that an example reads."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copy(Path(__file__).with_name("adult.toml"), folder)
    lines = ["age,workclass,education,education-num,sex,income"]
    for i in range(400):
        level = i % 3
        lines.append(
            f"{17 + i % 70},{('Private', 'State', '?')[i % 5 % 3]},{('Bachelors', 'Masters', 'Doctorate')[level]},"
            f"{(13, 14, 16)[level]},{('Female', 'Male')[i % 2]},{('<=50K', '>50K')[i % 7 % 2]}"
        )
    (folder / "adult.csv").write_text("\n".join(lines) + "\n")
    polars.read_csv(folder / "adult.csv").write_excel(folder / "adult.xlsx")
    with duckdb.connect(str(folder / "adult.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS FROM read_csv('{folder / 'adult.csv'}')")
        connection.execute(f"COPY people TO '{folder / 'adult.parquet'}'")
    metadata = {"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1", "columns": {"age": {"sdtype": "numerical"}}}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    Ledger(folder / "ledger.db").open_account("adult", epsilon=3.0, delta=2**-30)
    # Where an anchor goes.
    (folder / "safe").mkdir()
    for line in LINES["made"]:
        call(*line.split(), cwd=folder)
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    shutil.copytree(prepared, tmp_path / "work")
    # A copied ledger must be put in force.
    Ledger(tmp_path / "work" / "ledger.db").adopt()
    return tmp_path / "work"


def begin(line: str, folder: Path) -> list[str]:
    """The words of an example, before which there is what it reads, and nothing of somebody else where it writes."""
    taken = {"ledger init": "ledger.db", "sign --new-key": "custodian.key", "schema draft": "adult.toml"}
    taken |= {"release": "synthetic.csv"}
    for command, made in taken.items():
        for path in folder.glob(made) if line.startswith(f"sklar {command}") else ():
            path.unlink()
    if "--resume" in line:
        sklar.fit(folder / "adult.csv", folder / "adult.toml", epsilon=1.0, keep=folder / "adult.measured.sklar")
    return shlex.split(line)[1:]


def examples(text: str | None) -> list[str]:
    return [line.strip() for line in inspect.cleandoc(text or "").splitlines() if line.startswith("  sklar ")]


COMMANDS: dict[str, click.Command] = {}
for _name, _command in cli.commands.items():
    _inner = _command.commands if isinstance(_command, click.Group) else {"": _command}
    COMMANDS |= {f"{_name} {each}".strip(): command for each, command in _inner.items()}
EXAMPLES = {line for command in COMMANDS.values() for line in examples(command.help)} | set(examples(cli.help))
HEAVY = {"sklar audit --quick", "sklar demo", "sklar generate dss --rows 100000 --out dss.parquet --schema dss.toml"}

# They serve until they are interrupted; tests/studio drives them.
SERVING = {line for line in EXAMPLES if line.startswith("sklar studio")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_of_itself(name: str) -> None:
    shown = examples(COMMANDS[name].help)
    assert shown
    assert all(line.startswith(f"sklar {name}") for line in shown)


@pytest.mark.parametrize(
    "line",
    [*sorted(EXAMPLES - HEAVY - SERVING), *(pytest.param(line, marks=pytest.mark.slow) for line in sorted(HEAVY))],
)
def test_examples_of_the_help_run(line: str, folder: Path) -> None:
    words = begin(line, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    call(*words, cwd=folder)
    for option in {"--out", "-o", "--model", "--report"} & set(words):
        made = folder / words[words.index(option) + 1]
        assert made.is_file() or any(made.glob("p*.*"))
        assert made not in before or made.stat().st_mtime_ns > before[made]


# The last example of every command that prints figures, and shorter ones of two; an audit takes long.
FIGURES = {
    name: [line for line in examples(command.help) if "--json" not in line][-1]
    for name, command in COMMANDS.items()
    if name != "audit" and any("--json" in option.opts for option in command.params)
} | {"ledger init": "sklar ledger init o.db --dataset adult --epsilon 3", "verify": "sklar verify adult.sklar"}
NO_FIGURES = {"audit", "studio", "warm", "ledger adopt", "ledger anchor", "ledger upgrade"}


def test_every_command_can_be_quiet_and_those_with_figures_print_json() -> None:
    assert set(COMMANDS) - set(FIGURES) == NO_FIGURES
    assert all(any("--quiet" in option.opts for option in command.params) for command in COMMANDS.values())


@pytest.mark.parametrize("name", FIGURES)
def test_json_is_all_that_is_printed(name: str, folder: Path) -> None:
    done = call(*begin(FIGURES[name], folder), "--json", cwd=folder)
    assert json.loads(done.stdout)


def test_what_a_release_says_in_json(folder: Path) -> None:
    line = "release adult.csv --schema adult.toml --epsilon 1 --out o.csv --rows 70 --seed 5 --ledger ledger.db --json"
    found = json.loads(call(*shlex.split(line), cwd=folder).stdout)
    assert (found["rows"], found["seed"], found["out"], found["model"]) == (70, 5, "o.csv", "o.sklar")
    assert found["certificate"]["epsilon"] == 1
    assert found["ledger"]["releases"] == 2
    assert found["certificate"]["receipt"]["entry"] == 5
    again = json.loads(call(*shlex.split("sample o.sklar --rows 70 --seed 5 --out p.csv --json"), cwd=folder).stdout)
    assert again["spent_epsilon"] == 0
    assert (folder / "o.csv").read_text() == (folder / "p.csv").read_text()


@pytest.mark.parametrize("line", LINES["by a model for its schema"])
def test_a_model_is_a_schema_wherever_one_is_asked(line: str, folder: Path) -> None:
    call(*shlex.split(line), "--quiet", cwd=folder)


def test_a_model_is_known_by_its_content_and_a_damaged_one_is_named(folder: Path) -> None:
    (folder / "adult.sklar").rename(folder / "model.bin")
    known = call(*shlex.split("schema check model.bin"), cwd=folder)
    assert "model.bin: table 'adult', 6 attributes" in known.stdout
    (folder / "cut.sklar").write_bytes(b"PK")
    damaged = run("schema", "check", "cut.sklar", cwd=folder, code=1)
    assert damaged.stderr.startswith("sklar: 'cut.sklar' is not a Sklar model file, or it is damaged"), damaged.stderr


# Commands whose figures are the answer to a question; the others do something, and say so.
ASKING = (
    *("verify", "forecast", "plan", "query", "infer", "evaluate", "compare"),
    *("schema check", "ledger show", "ledger history", "ledger check"),
)


@pytest.mark.parametrize("name", FIGURES)
def test_quiet_prints_only_what_was_asked_for(name: str, folder: Path) -> None:
    done = call(*begin(FIGURES[name], folder), "--quiet", cwd=folder)
    assert done.stderr == ""
    assert (done.stdout != "") == (name in ASKING)


def test_no_color_is_honored(folder: Path) -> None:
    command = ("sample", "adult.sklar", "--out", "o.csv")
    color = re.compile(r"\x1b\[[0-9;]*(3[0-9]|38;5;[0-9]+)m")
    assert color.search(on_a_terminal(*command, cwd=folder))
    assert not color.search(on_a_terminal(*command, cwd=folder, NO_COLOR="1"))
    assert on_a_terminal(*command, "--quiet", cwd=folder) == ""


@pytest.mark.parametrize("line", ["verify adult.sklar", "--help", "query adult.sklar \"sex = 'Male'\""])
def test_a_reader_that_goes_away_is_no_error_to_print(line: str, folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run(*shlex.split(line), cwd=folder, code=141, stdout=writing)
    os.close(writing)
    assert done.stderr == ""


def test_the_page_of_commands_is_not_stale() -> None:
    assert (DOCS / "commands.md").read_text() == page(), "run python -m docs.reference docs/commands.md"


def test_exit_codes_are_documented(tmp_path: Path) -> None:
    shown, told = call("--help", cwd=tmp_path).stdout, (DOCS / "interfaces.md").read_text()
    for code in ("0", "1", "2", "130", "141"):
        assert re.search(rf"^ +{code} +\w", shown, re.MULTILINE)
        assert f"| {code} |" in told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, tmp_path: Path) -> None:
    done = run(cwd=tmp_path, env=os.environ | {"_SKLAR_COMPLETE": f"{shell}_source"})
    assert f"_SKLAR_COMPLETE={shell}_complete" in done.stdout
    place = "im" if shell == "fish" else "2"
    asked = os.environ | {"_SKLAR_COMPLETE": f"{shell}_complete", "COMP_WORDS": "sklar schema im", "COMP_CWORD": place}
    assert "import" in run(cwd=tmp_path, env=asked).stdout


def test_what_duckdb_leaves_behind_is_not_told_at_exit() -> None:
    """It lists objects on standard error when the interpreter ends: 47 lines after a successful release."""
    code = (
        "import os, sys, types\n"
        "class Left:\n"
        "    def __del__(self, write=os.write):\n"
        "        write(2, b'nanobind: leaked')\n"
        "sys.modules['duckdb'] = types.ModuleType('duckdb')\n"
        "left = Left()\n"
        "sys.argv = ['sklar', *sys.argv[1:]]\n"
        "from sklar.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sklar ")
    assert done.stderr == ""
    failed = subprocess.run([sys.executable, "-c", code, "sample", "none.sklar", "--out", "x.csv"], capture_output=True)
    assert (failed.returncode, b"does not exist" in failed.stderr, b"leaked" in failed.stderr) == (1, True, False)
