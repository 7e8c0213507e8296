"""No command writes over what it reads, nor over what another has paid for; and what was measured is never lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sklar.errors import OutputError
from sklar.machine.stores import fresh_file, require_apart
from tests.cli.conftest import call

TOML = '[attributes]\nage = {type = "integer", edges = [0, 18, 65, 120]}\nseen = {type = "boolean"}\n'
RELEASE = ("release", "d.csv", "--schema", "s.toml", "--epsilon", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"{17 * i % 100},{'true' if i % 4 else 'false'}" for i in range(300)]
    (tmp_path / "d.csv").write_text("\n".join(["age,seen", *rows]) + "\n")
    (tmp_path / "s.toml").write_text(TOML)
    (tmp_path / "sub").mkdir()
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SPELLINGS: dict[str, Callable[[Path, Path], object]] = {
    "d.csv": lambda *_: None,
    "sub/../d.csv": lambda *_: None,
    "soft.csv": lambda link, to: link.symlink_to(to),
    "hard.csv": lambda link, to: link.hardlink_to(to),
}


@pytest.mark.parametrize("out", SPELLINGS)
def test_no_output_is_an_input_by_any_spelling_or_link(folder: Path, out: str) -> None:
    SPELLINGS[out](folder / out, folder / "d.csv")
    before = contents(folder)
    assert "which is read. Name another file." in call(*RELEASE, "--out", out, cwd=folder, code=1).output
    assert contents(folder) == before


@pytest.mark.parametrize(
    "command",
    [
        "fit d.csv --schema s.toml --epsilon 1 --model l.sklar --ledger l.sklar --dataset t",
        "fit d.csv --schema s.toml --epsilon 1 --model a.sklar --ledger l.sklar --dataset t",
        "fit d.csv --schema s.toml --epsilon 1 --model k.sklar --ledger l.sklar --dataset t --ledger-key k.sklar",
        "schema draft d.csv -o s.toml/../l.sklar",
        "evaluate d.csv d.csv --schema s.toml --report l.sklar",
        "publish m.sklar --out .",
        "schema import s.toml -o s.toml",
        "release sub --schema s.toml --epsilon 1 --out sub/o.csv",
    ],
)
def test_nothing_is_written_over_ledger_anchor_key_or_schema(folder: Path, command: str) -> None:
    call("ledger", "init", "l.sklar", "--dataset", "t", "--epsilon", "3", "--anchor", "a.sklar", cwd=folder)
    (folder / "k.sklar").write_text("0" * 64)
    (folder / "m.sklar").write_text("")
    before = contents(folder)
    call(*command.split(), cwd=folder, code=1)
    assert contents(folder) == before


def test_a_database_or_a_key_is_never_written_over(tmp_path: Path) -> None:
    for name, text in (("l.csv", b"SQLite format 3\0..."), ("k.csv", b"-----BEGIN PRIVATE KEY-----\n")):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(OutputError, match="is never written over"):
            require_apart(tmp_path / name)


def test_an_output_is_not_put_around_or_among_inputs(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="must not be written over"):
        require_apart(tmp_path, tmp_path / "a" / "b.csv")
    with pytest.raises(OutputError, match="must not lie in"):
        require_apart(tmp_path / "a" / "b.csv", f"file://{tmp_path}")
    require_apart(tmp_path / "a.csv", tmp_path / "b.csv", "s3://bucket/a.csv", object(), None)


def test_what_killed_runs_left_is_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "out[1].csv"
    own = fresh_file(target)
    dead = own.with_name(own.name.replace(f"-{os.getpid()}-", "-99999999-"))
    other = own.with_name(own.name.replace("out[1]", "out1").replace(f"-{os.getpid()}-", "-99999999-"))
    dead.touch()
    other.touch()
    second = fresh_file(target)
    assert {*tmp_path.iterdir()} == {own, other, second}
