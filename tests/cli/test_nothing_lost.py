"""No command writes over what it reads, nor over what another has paid for; and what was measured is never lost."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sklar
from sklar.budget.ledger import Ledger
from sklar.errors import OutputError
from sklar.files import archive
from sklar.files.model import Unfitted
from sklar.machine.stores import fresh_file, require_apart
from tests.cli.conftest import call
from tests.linked import small, tables

LINES = tomllib.loads(Path(__file__).with_name("lines.toml").read_text())

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


@pytest.mark.parametrize("command", LINES["over what is read"])
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


FIT = ("fit", "d.csv", "--schema", "s.toml", "--epsilon", "1", "--model", "m.sklar")
KEPT = "m.measured.sklar"


def spent(folder: Path) -> int:
    return len(Ledger(folder / "l.db").account("t").charges)


@pytest.fixture
def booked(folder: Path) -> Path:
    call("ledger", "init", "l.db", "--dataset", "t", "--epsilon", "9", cwd=folder)
    return folder


def test_a_full_disk_loses_no_model(booked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills after the charge, when the model is saved: what was measured is fitted again, at no cost."""
    with monkeypatch.context() as full:
        full.setattr("sklar.files.archive.arrays_of", partial(full_disk, archive.arrays_of))
        done = call(*FIT, "--ledger", "l.db", "--dataset", "t", cwd=booked, code=1)
    assert "No space left on device" in done.output
    assert f"What was measured is in {KEPT}. To go on at no cost: sklar fit --resume {KEPT} --model FILE" in done.output
    kept = booked / KEPT
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not (booked / "m.sklar").exists()
    # The same command again would pay again, and nothing is written over what was paid for.
    assert "measured and paid for" in call(*FIT, cwd=booked, code=1).output
    for wrong in (("--epsilon", "1"), ("--schema", "s.toml"), ("--ledger", "l.db")):
        resumed = ("fit", "--resume", KEPT, *wrong, "--model", "o.sklar")
        assert "--resume replaces" in call(*resumed, cwd=booked, code=2).output
    assert "no model. Fit one" in call("sample", KEPT, "--out", "o.csv", cwd=booked, code=1).output
    (booked / "copy.sklar").write_bytes(kept.read_bytes())
    call("release", "--resume", KEPT, "--out", "rows.csv", "--model", "m.sklar", "--rows", "9", cwd=booked)
    assert not kept.exists()
    call("fit", "--resume", "copy.sklar", "--model", "other.sklar", cwd=booked)
    assert (booked / "m.sklar").read_bytes() == (booked / "other.sklar").read_bytes()
    assert call("verify", "m.sklar", "--refit", cwd=booked, code=3).output.count("FAIL") == 0
    assert "a model already" in call("fit", "--resume", "m.sklar", "--model", "o.sklar", cwd=booked, code=1).output
    assert spent(booked) == 1


def full_disk(real: Callable[..., Any], model: Any) -> Any:
    if isinstance(model, Unfitted):
        return real(model)
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stage", ["pool", "refined"])
def test_a_kill_between_stages_loses_no_model(booked: Path, stage: str) -> None:
    """The process is killed while it fits, as by the system where memory is short: no handler runs."""
    where = {"pool": "sklar.fitting.margins", "refined": "sklar.fitting.choose"}[stage]
    code = f"import os, sklar, {where} as stage; stage.{stage} = lambda *_: os._exit(9)\n" + (
        "sklar.fit('d.csv', 's.toml', epsilon=1.0, ledger='l.db', dataset='t', keep='kept.sklar')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=booked, check=False)
    assert done.returncode == 9
    sklar.resume(booked / "kept.sklar").save(booked / "m.sklar")
    assert sklar.verify(booked / "m.sklar").passed
    assert spent(booked) == 1


def test_linked_tables_go_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = sklar.fit(tables(), small(), epsilon=3.0, keep="kept.sklar")
    call("fit", "--resume", "kept.sklar", "--model", "m.sklar", cwd=tmp_path)
    model.save("other.sklar")
    assert Path("m.sklar").read_bytes() == Path("other.sklar").read_bytes()
    assert "Linked tables are several" in call("sample", "m.sklar", "--out", "o.csv", cwd=tmp_path, code=1).output


def test_a_disk_without_room_is_refused_before_the_charge(booked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklar.files.write.disk_usage", lambda _: SimpleNamespace(free=1))
    done = call(*FIT, "--ledger", "l.db", "--dataset", "t", cwd=booked, code=1)
    assert "Make room first: nothing was spent." in done.output
    assert spent(booked) == 0


def test_what_somebody_else_wrote_needs_a_word(folder: Path) -> None:
    """Models, rows and schemas that the same command on the same inputs wrote are replaced, all others are kept."""
    (folder / "words.csv").write_text("mine")
    for _ in range(2):
        call(*FIT, cwd=folder)
        call(*RELEASE, "--out", "r.csv", cwd=folder)
        call("schema", "draft", "d.csv", "-o", "d.toml", cwd=folder)
        call("schema", "review", "d.toml", cwd=folder, typed="A\n")
        call("publish", "m.sklar", "--out", "p", "--rows", "9", "--no-refit", cwd=folder)
    call("sign", "--new-key", "k", cwd=folder)
    call("publish", "m.sklar", "--out", "p", "--rows", "9", "--no-refit", "--sign", "k", cwd=folder)
    edited = (folder / "d.toml").read_text().replace("100", "120", 1) + "# A word of mine.\n"
    (folder / "d.toml").write_text(edited)
    before = contents(folder)
    (folder / "s2.toml").write_text("mine")
    before |= {"s2.toml": b"mine"}
    for command in LINES["over what others wrote"]:
        assert "--replace" in call(*command.split(), cwd=folder, code=1).output, command
        assert contents(folder) == before
    for command in LINES["over what others wrote"]:
        call(*command.split(), "--replace", cwd=folder)
