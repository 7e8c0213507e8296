"""Counting that is interrupted goes on: exact, protected, and gone in the end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sklar.errors import DataError, OutputError
from sklar.machine.progress import SILENT
from sklar.machine.stores import own_folder
from sklar.machine.threads import using
from sklar.public.schema import Schema
from sklar.release import fit
from sklar.rows import engines as resume
from sklar.rows.count import Exact, ask_all, count
from sklar.rows.engines import count_resumable, open_table
from sklar.rows.read import open_source
from tests.conftest import refuses as refused
from tests.rows.test_count import Told, same, schema_of

SCHEMA = schema_of([2, 3, 40])
SHARDS, ROWS = 8, 500

# Counts shards one by one, and when the fifth has begun says so and waits to be killed.
INTERRUPTED = """
import sys, time
from pathlib import Path
from sklar.rows.count import ask_all
from sklar.rows.engines import open_table
from sklar.public.schema import Schema
from sklar.machine.threads import using

class Stop:
    rows = 0
    def advance(self, steps):
        self.rows += steps
        if self.rows > 4 * {rows}:
            print("here", flush=True)
            time.sleep(600)

data, checkpoint, schema = sys.argv[1:]
with using(1):
    described = Schema.load(schema)
    open_table(data, described, checkpoint=checkpoint).count(ask_all(described), progress=Stop())
"""


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(SHARDS):
        rng = np.random.default_rng(number)
        columns = {f"a{i}": rng.integers(0, size, ROWS) for i, size in enumerate(SCHEMA.sizes)}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return folder


ASK = ask_all(SCHEMA)


def whole(folder: Path) -> Exact:
    return count(open_source(folder).batches(SCHEMA.names), ASK)


def kill_in_the_middle(shards: Path, checkpoint: Path) -> None:
    described = shards.parent / "schema.toml"
    described.write_text(SCHEMA.to_toml())
    command = [sys.executable, "-c", INTERRUPTED.format(rows=ROWS), str(shards), str(checkpoint), str(described)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(300) == -signal.SIGKILL


def test_a_killed_pass_goes_on_where_it_ended(shards: Path, tmp_path: Path) -> None:
    checkpoint, exact = tmp_path / "kept", whole(shards)
    kill_in_the_middle(shards, checkpoint)
    kept = checkpoint / "counts.npz"
    assert stat.S_IMODE(checkpoint.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    covered = [name for name, _ in resume._read(checkpoint, {}, ASK)[1]]
    # Keeping may be put off once it has taken a while: at least the first shard is kept.
    assert covered == [f"{number}.parquet" for number in range(len(covered))]
    assert 1 <= len(covered) <= 4
    # What is covered is not read again: it could not be.
    for name in covered:
        before = (shards / name).stat()
        with (shards / name).open("r+b") as file:
            file.seek(4)
            file.write(b"\0" * 40)
        os.utime(shards / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    told = Told()
    with using(1):
        assert same(open_table(shards, SCHEMA, checkpoint=checkpoint).count(ASK, progress=told), exact)
    assert told.steps == [ROWS * len(covered)] + [ROWS] * (SHARDS - len(covered))
    assert not checkpoint.exists()


def counted(shards: Path, checkpoint: Path, schema: Schema = SCHEMA, progress: Any = SILENT) -> Exact:
    with using(1):
        return count_resumable(open_source(shards), schema, ask_all(schema), checkpoint, progress=progress)


def refuses(match: str | None, action: Callable[..., object], *given: Any, **settings: Any) -> BaseException:
    return refused(match, action, *given, **{"error": DataError, **settings})


def interrupted(shards: Path, checkpoint: Path, shards_done: int) -> None:
    """The same in this process, quickly: an exception in the middle of the shard after so many."""

    class Stop(Told):
        def advance(self, steps: int) -> None:
            super().advance(steps)
            if len(self.steps) > shards_done:
                raise KeyboardInterrupt

    refuses(None, counted, shards, checkpoint, progress=Stop(), error=KeyboardInterrupt)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are kept after every shard."""
    monkeypatch.setattr(resume, "_PATIENCE", 0)


def resumed(shards: Path, checkpoint: Path, schema: Schema = SCHEMA) -> list[int]:
    told = Told()
    counts = counted(shards, checkpoint, schema, told)
    assert same(counts, count(open_source(shards).batches(schema.names), ask_all(schema)))
    assert not checkpoint.exists()
    return told.steps


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("done", [0, 1, 3, SHARDS - 1])
def test_an_interruption_costs_one_shard_at_most(shards: Path, tmp_path: Path, done: int) -> None:
    interrupted(shards, tmp_path / "kept", done)
    assert resumed(shards, tmp_path / "kept") == [ROWS * done] * (done > 0) + [ROWS] * (SHARDS - done)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("change", ["time", "content", "gone", "schema", "folder"])
def test_what_changed_is_counted_anew(shards: Path, tmp_path: Path, change: str) -> None:
    interrupted(shards, tmp_path / "kept", 3)
    shard, schema = shards / "1.parquet", SCHEMA
    if change == "time":
        os.utime(shard)
    elif change == "content":
        before = shard.stat()
        pq.write_table(pq.read_table(shard).slice(7), shard)
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "gone":
        shard.unlink()
    elif change == "schema":
        schema = schema_of([2, 3, 39])
    else:
        shards = shards.rename(tmp_path / "moved")
    steps = resumed(shards, tmp_path / "kept", schema)
    assert max(steps) <= ROWS
    assert len(steps) == SHARDS - (change == "gone")


@pytest.mark.usefixtures("at_once")
def test_a_shard_that_came_later_is_counted_too(shards: Path, tmp_path: Path) -> None:
    interrupted(shards, tmp_path / "kept", 3)
    pq.write_table(pq.read_table(shards / "1.parquet").slice(7), shards / "0.later.parquet")
    assert resumed(shards, tmp_path / "kept")[0] == 3 * ROWS


@pytest.mark.usefixtures("at_once")
def test_a_damaged_checkpoint_is_refused(shards: Path, tmp_path: Path) -> None:
    interrupted(shards, tmp_path / "kept", 3)
    kept = tmp_path / "kept" / "counts.npz"
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    for damaged in (bytes(content), content[:100], b""):
        kept.write_bytes(damaged)
        refuses(r"is damaged\. Delete it to count from the beginning", counted, shards, tmp_path / "kept")


def test_a_file_that_changes_while_it_is_read_is_refused(shards: Path, tmp_path: Path) -> None:
    class Touch(Told):
        def advance(self, steps: int) -> None:
            os.utime(shards / "0.parquet", ns=(1, 1))

    refuses("changed while it was read", counted, shards, tmp_path / "kept", progress=Touch())


def test_what_a_kill_left_half_written_is_removed_and_others_files_stay(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(mode=0o700)
    for name in (".counts.npz.abc.part", "mine"):
        (tmp_path / "kept" / name).write_text("text")
    counted(shards, tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine"]


def test_a_folder_open_to_others_is_refused(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o750)
    refuses("must be yours and closed to others", counted, shards, tmp_path / "open", error=OutputError)
    (tmp_path / "file").write_text("")
    for other in ("file", "none/below"):
        refuses("cannot be used", counted, shards, tmp_path / other, error=OutputError)


def test_two_runs_do_not_share_a_checkpoint(shards: Path, tmp_path: Path) -> None:
    with own_folder(tmp_path / "kept"):
        refuses("in use by another run", counted, shards, tmp_path / "kept", error=OutputError)


def test_a_checkpoint_is_for_a_folder_outside_of_which_it_lies(shards: Path, tmp_path: Path) -> None:
    refuses("a checkpoint is for a folder of files, got file", counted, shards / "0.parquet", tmp_path / "kept")
    refuses("must lie outside of folder", counted, shards, shards / "kept")


def test_a_full_disk_is_said_and_nothing_is_released(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "savez", Mock(side_effect=OSError(28, "No space left on device")))
    full = r"could not be written: No space left on device\. Nothing was released"
    refuses(full, fit, shards, SCHEMA, epsilon=1.0, checkpoint=tmp_path / "kept", error=OutputError)
    assert list((tmp_path / "kept").iterdir()) == []


def test_private_domains_take_no_checkpoint(shards: Path, tmp_path: Path) -> None:
    schema, kept = Schema.from_toml("[attributes.a2]\ntype = 'categorical'\ndomain = 'private'"), tmp_path / "kept"
    said = "a checkpoint goes with public domains only"
    refuses(said, fit, shards, schema, epsilon=1.0, checkpoint=kept, error=DataError)
