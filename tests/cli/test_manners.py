"""How the command line behaves among other tools: examples that run, JSON, silence, colors, completion, exit codes."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import duckdb
import pytest
from click.testing import CliRunner, Result

from sklar.budget.ledger import Ledger
from sklar.cli import COMMANDS as MODULES
from sklar.cli import cli
from tests.cli.test_cli import run

ADULT = """
[table]
name = "adult"
[attributes]
age = {type = "integer", edges = [0, 20, 30, 40, 60, 120]}
workclass = {type = "categorical", values = ["Private", "State"], missing = "?"}
education = {type = "categorical", values = ["Bachelors", "Masters", "Doctorate"]}
education-num = {type = "integer", edges = [13, 14, 15, 17]}
sex = {type = "categorical", values = ["Female", "Male"]}
income = {type = "categorical", values = ["<=50K", ">50K"]}
"""


def call(*arguments: str, cwd: Path) -> Result:
    """The same as `run`, without a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        return CliRunner().invoke(cli, arguments)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that an example reads."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "adult.toml").write_text(ADULT)
    lines = ["age,workclass,education,education-num,sex,income"]
    for i in range(400):
        level = i % 3
        lines.append(
            f"{17 + i % 70},{('Private', 'State', '?')[i % 5 % 3]},{('Bachelors', 'Masters', 'Doctorate')[level]},"
            f"{(13, 14, 16)[level]},{('Female', 'Male')[i % 2]},{('<=50K', '>50K')[i % 7 % 2]}"
        )
    (folder / "adult.csv").write_text("\n".join(lines) + "\n")
    with duckdb.connect(str(folder / "adult.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS FROM read_csv('{folder / 'adult.csv'}')")
        connection.execute(f"COPY people TO '{folder / 'adult.parquet'}'")
    (folder / "metadata.json").write_text(
        json.dumps({"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1", "columns": {"age": {"sdtype": "numerical"}}})
    )
    Ledger(folder / "ledger.db").open_account("adult", epsilon=3.0, delta=2**-30)
    # Where an anchor goes.
    (folder / "safe").mkdir()
    charged = ("--epsilon", "1", "--ledger", "ledger.db")
    release = ("release", "adult.csv", "--schema", "adult.toml", *charged, "--out", "synthetic.csv")
    assert call(*release, "--model", "adult.sklar", cwd=folder).exit_code == 0
    assert call("tables", "adult.sklar", "--out", "tables.parquet", cwd=folder).exit_code == 0
    visits = ("generate", "visits", "--rows", "300", "--out", "patients.csv", "--events-out", "visits.csv")
    assert call(*visits, "--schema", "visits.toml", cwd=folder).exit_code == 0
    linked = ("link", "patients.csv", "visits.csv", "--schema", "visits.toml", "--epsilon", "1", "--out", "p.csv")
    assert call(*linked, "--events-out", "v.csv", "--model", "visits.sklar", cwd=folder).exit_code == 0
    assert call("sign", "--new-key", "custodian.key", cwd=folder).exit_code == 0
    assert call("sign", "adult.sklar", "--key", "custodian.key", cwd=folder).exit_code == 0
    assert call("publish", "adult.sklar", "--out", "published", "--rows", "20", cwd=folder).exit_code == 0
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    shutil.copytree(prepared, tmp_path / "work")
    # A copied ledger must be put in force.
    Ledger(tmp_path / "work" / "ledger.db").adopt()
    return tmp_path / "work"


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def examples(text: str | None) -> list[str]:
    return [line.strip() for line in inspect.cleandoc(text or "").splitlines() if line.startswith("  sklar ")]


COMMANDS = dict(commands())
EXAMPLES = {line for command in COMMANDS.values() for line in examples(command.help)} | set(examples(cli.help))
HEAVY = {"sklar audit --quick", "sklar demo", "sklar generate dss --rows 100000 --out dss.parquet --schema dss.toml"}

# They serve until they are interrupted; tests/studio drives them.
SERVING = {line for line in EXAMPLES if line.startswith("sklar studio")}


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_every_command_shows_an_example_of_itself(name: tuple[str, ...]) -> None:
    shown = examples(COMMANDS[name].help)
    assert shown
    assert all(line.startswith(f"sklar {' '.join(name)}") for line in shown)


def test_every_command_stands_in_the_module_that_the_table_names() -> None:
    for name, command in COMMANDS.items():
        assert command.callback is not None
        assert name[0] in MODULES[command.callback.__module__.removeprefix("sklar.cli.")]


def assert_runs(line: str, folder: Path) -> None:
    if line.startswith("sklar ledger init"):
        (folder / "ledger.db").unlink()
    if line.startswith("sklar sign --new-key"):
        (folder / "custodian.key").unlink()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    done = call(*shlex.split(line)[1:], cwd=folder)
    assert done.exit_code == 0, done.exception
    for option in ("--out", "-o", "--model", "--report"):
        if f" {option} " in line:
            made = folder / shlex.split(line)[shlex.split(line).index(option) + 1]
            assert made.is_file() or (made / "passport.json").is_file()
            assert made not in before or made.stat().st_mtime_ns > before[made]


@pytest.mark.parametrize("line", sorted(EXAMPLES - HEAVY - SERVING))
def test_examples_of_the_help_run(line: str, folder: Path) -> None:
    assert_runs(line, folder)


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(HEAVY))
def test_examples_that_take_long_run_too(line: str, folder: Path) -> None:
    assert_runs(line, folder)


FIGURES = {
    ("release",): "release adult.csv --schema adult.toml --epsilon 1 --out o.csv",
    ("link",): "link patients.csv visits.csv --schema visits.toml --epsilon 1 --out o.csv --events-out e.csv",
    ("fit",): "fit adult.csv --schema adult.toml --epsilon 1 --model o.sklar --ledger ledger.db",
    ("sample",): "sample adult.sklar --rows 9 --out o.csv",
    ("tables",): "tables adult.sklar --out o.parquet",
    ("verify",): "verify adult.sklar",
    ("sign",): "sign adult.sklar --key custodian.key",
    ("forecast",): "forecast --schema adult.toml --rows 400 --epsilon 1",
    ("plan",): 'plan --schema adult.toml --rows 400 --want "sex within 20%"',
    ("query",): "query adult.sklar \"sex = 'Male'\"",
    ("infer",): 'infer adult.sklar "mean(age) by sex"',
    ("report",): "report adult.sklar --out o.html",
    ("publish",): "publish adult.sklar --out o --rows 20",
    ("evaluate",): "evaluate adult.csv synthetic.csv --schema adult.toml",
    ("demo",): "demo --rows 500 --out shown",
    ("generate",): "generate census --rows 50 --out o.csv --schema o.toml",
    ("schema", "draft"): "schema draft adult.csv -o o.toml",
    ("schema", "review"): "schema review adult.toml --accept",
    ("schema", "import"): "schema import metadata.json -o o.toml",
    ("schema", "check"): "schema check adult.toml adult.csv",
    ("ledger", "init"): "ledger init o.db --dataset adult --epsilon 3",
    ("ledger", "show"): "ledger show ledger.db",
    ("ledger", "history"): "ledger history ledger.db",
    ("ledger", "check"): "ledger check ledger.db adult.sklar",
    ("ledger", "bind"): "ledger bind ledger.db adult.csv --dataset adult",
}
NO_FIGURES: set[tuple[str, ...]] = {("audit",), ("completion",), ("studio",), ("warm",)}
NO_FIGURES |= {("ledger", name) for name in ("adopt", "anchor", "upgrade")}


def test_every_command_that_prints_figures_is_tested_for_json() -> None:
    assert set(FIGURES) | NO_FIGURES == set(COMMANDS)
    for name, command in COMMANDS.items():
        assert any("--json" in option.opts for option in command.params) == (name in FIGURES or name == ("audit",))
        assert any("--quiet" in option.opts for option in command.params)


@pytest.mark.parametrize("line", FIGURES.values())
def test_json_is_all_that_is_printed(line: str, folder: Path) -> None:
    done = call(*shlex.split(line), "--json", cwd=folder)
    assert done.exit_code == 0, done.exception
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


@pytest.mark.parametrize(
    "line",
    [
        "evaluate adult.csv synthetic.csv --schema adult.sklar",
        "forecast --schema adult.sklar --rows 400 --epsilon 1",
        "schema check adult.sklar adult.csv",
        "release adult.csv --schema adult.sklar --epsilon 1 --rows 9 --out o.csv --model o.sklar",
        "fit --tables tables.parquet --schema adult.sklar --model o.sklar",
    ],
)
def test_a_model_is_a_schema_wherever_one_is_asked(line: str, folder: Path) -> None:
    done = call(*shlex.split(line), "--quiet", cwd=folder)
    assert done.exit_code == 0, done.output


def test_a_model_is_known_by_its_content_and_a_damaged_one_is_named(folder: Path) -> None:
    (folder / "adult.sklar").rename(folder / "model.bin")
    known = call(*shlex.split("schema check model.bin"), cwd=folder)
    assert "model.bin: table 'adult', 6 attributes" in known.stdout
    (folder / "cut.sklar").write_bytes(b"PK")
    damaged = run("schema", "check", "cut.sklar", cwd=folder)
    assert damaged.returncode == 1
    assert damaged.stderr.startswith("sklar: 'cut.sklar' is not a Sklar model file, or it is damaged"), damaged.stderr


# Commands whose figures are the answer to a question; the others do something, and say so.
ASKING = (
    *("verify", "forecast", "plan", "query", "infer", "evaluate"),
    *("schema check", "ledger show", "ledger history", "ledger check"),
)


@pytest.mark.parametrize("name", FIGURES, ids=" ".join)
def test_quiet_prints_only_what_was_asked_for(name: tuple[str, ...], folder: Path) -> None:
    done = call(*shlex.split(FIGURES[name]), "--quiet", cwd=folder)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert (done.stdout != "") == (" ".join(name) in ASKING)


def test_quiet_still_shows_errors(folder: Path) -> None:
    done = run("sample", "none.sklar", "--out", "o.csv", "--quiet", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("sklar: model file 'none.sklar' does not exist.")


def read_terminal(ours: int) -> str:
    """All that is drawn on a terminal until its last process ends."""
    drawn = b""
    # Linux says that a terminal has ended by an error.
    with suppress(OSError):
        while block := os.read(ours, 65_536):
            drawn += block
    os.close(ours)
    return drawn.decode()


def on_a_terminal(command: list[str], folder: Path, **environment: str) -> str:
    """What a command draws on a terminal."""
    ours, theirs = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-m", "sklar", *command],
        cwd=folder,
        env=clean | {"TERM": "xterm-256color"} | environment,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    drawn = read_terminal(ours)
    assert process.wait() == 0
    return drawn


def test_no_color_is_honored(folder: Path) -> None:
    command = ["sample", "adult.sklar", "--out", "o.csv"]
    color = re.compile(r"\x1b\[[0-9;]*(3[0-9]|38;5;[0-9]+)m")
    assert color.search(on_a_terminal(command, folder))
    assert not color.search(on_a_terminal(command, folder, NO_COLOR="1"))
    assert on_a_terminal([*command, "--quiet"], folder) == ""


def test_a_check_that_fails_is_exit_code_1(folder: Path) -> None:
    import zipfile

    with zipfile.ZipFile(folder / "adult.sklar") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(members["model.json"])
    document["certificate"]["epsilon"] /= 2
    members["model.json"] = json.dumps(document).encode()
    with zipfile.ZipFile(folder / "adult.sklar", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert run("verify", "adult.sklar", cwd=folder).returncode == 1


@pytest.mark.parametrize("line", ["verify adult.sklar", "--help", "query adult.sklar \"sex = 'Male'\""])
def test_a_reader_that_goes_away_is_no_error_to_print(line: str, folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "sklar", *shlex.split(line)]
    done = subprocess.run(command, cwd=folder, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""


def test_exit_codes_are_documented() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    told = (Path(__file__).parents[2] / "docs" / "interfaces.md").read_text()
    for code in ("0", "1", "2", "130", "141"):
        assert re.search(rf"^ +{code} +\w", shown, re.MULTILINE)
        assert f"| {code} |" in told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, tmp_path: Path) -> None:
    done = call("completion", shell, cwd=tmp_path)
    assert done.exit_code == 0
    assert f"_SKLAR_COMPLETE={shell}_complete" in done.stdout
    if shell == "bash":
        # `test_bash_completes` asks as this script does.
        return
    place = "im" if shell == "fish" else "2"
    asked = os.environ | {"_SKLAR_COMPLETE": f"{shell}_complete", "COMP_WORDS": "sklar schema im", "COMP_CWORD": place}
    assert "import" in run(cwd=tmp_path, env=asked).stdout


def test_bash_completes(folder: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    shim = folder / "bin" / "sklar"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sklar "$@"\n')
    shim.chmod(0o755)
    script = (
        'eval "$(sklar completion bash)"; COMP_WORDS=(sklar release adult.csv --meth); COMP_CWORD=3; '
        '_sklar_completion sklar; echo "${COMPREPLY[@]}"'
    )
    path = f"{shim.parent}:{os.environ['PATH']}"
    command, environment = [bash, "--norc", "-c", script], os.environ | {"PATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "--method"


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
    failed = subprocess.run(
        [sys.executable, "-c", code, "sample", "nothing.sklar", "--out", "x.csv"], capture_output=True
    )
    assert (failed.returncode, b"does not exist" in failed.stderr, b"leaked" in failed.stderr) == (1, True, False)
