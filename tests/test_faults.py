"""Faults lose nothing: kill -9 at any moment, rows of any kind, planted markers, numbers at the edge."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sklar
from sklar.errors import BudgetError
from sklar.ledger import Ledger, cost, covers
from sklar.model import load
from sklar.private import measure as door
from sklar.schema import Schema

TOML = '[table]\nname = "people"\n[attributes.age]\ntype = "integer"\nedges = [0, 20, 40, 60, 120]\n' + (
    '[attributes.city]\ntype = "categorical"\nvalues = ["Bern", "Rome"]\nmissing = "?"\n'
)
SCHEMA = Schema.from_toml(TOML)
DELTA = 2.0**-30


def people(folder: Path, rows: str = "") -> Path:
    (folder / "s.toml").write_text(TOML)
    rows = rows or "".join(f"{20 + i % 50},{('Bern', 'Rome', '?')[i % 3]}\n" for i in range(300))
    (folder / "people.csv").write_text("age,city\n" + rows)
    return folder


# Many releases in one process, so that a kill falls on every part of one and not on the imports.
WORKER = """
import sys
from sklar.model import load
from sklar.release import fit
from sklar.schema import Schema
schema = Schema.load("s.toml")
print("ready", flush=True)
for i in range(1000):
    model = fit("people.csv", schema, epsilon=0.01, method="binary" if i % 2 else "mixture", ledger="l.db")
    model.save(f"{sys.argv[1]}-{i}.sklar")
    model.write(f"{sys.argv[1]}-{i}.csv", 50, seed=1)
"""


def kill_at_random(folder: Path, kills: int, seed: int) -> int:
    """Kill a worker again and again; then no file is half-written and every model is covered by charges of its own."""
    Ledger(folder / "l.db").open_account("people", epsilon=1000.0, delta=DELTA)
    generator = np.random.default_rng(seed)
    for number in range(kills):
        command = [sys.executable, "-c", WORKER, str(number)]
        worker = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        time.sleep(float(generator.uniform(0.0, 0.7)))
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
    account = Ledger(folder / "l.db").account("people")
    models = [load(path) for path in sorted(folder.glob("*.sklar"))]
    unused = [entry.cost for entry in account.charges]
    for model in models:
        groups = model.certificate.measurements
        measured = cost(
            model.certificate.mechanism,
            model.certificate.neighbors,
            [group.scale for group in groups],
            [group.tables for group in groups],
        )
        paid = next(charge for charge in unused if covers(charge, measured))
        unused.remove(paid)
    # A killed run may lose a charge, at most one each; no model is without one.
    assert 0 <= len(unused) <= kills
    for path in folder.glob("*.csv"):
        if path.name != "people.csv":
            assert len(path.read_text().splitlines()) == 51
    return len(models)


def test_killed_at_random_points(tmp_path: Path) -> None:
    kill_at_random(people(tmp_path), kills=6, seed=1)
    # A run after that works.
    sklar.fit(tmp_path / "people.csv", SCHEMA, epsilon=0.1, method="binary", ledger=tmp_path / "l.db")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_killed_two_hundred_times(tmp_path: Path, part: int) -> None:
    assert kill_at_random(people(tmp_path), kills=52, seed=100 + part) > 0


def test_a_killed_sample_leaves_no_file_under_its_name(tmp_path: Path) -> None:
    people(tmp_path)
    sklar.fit(tmp_path / "people.csv", SCHEMA, epsilon=1.0, method="binary").save(tmp_path / "m.sklar")
    command = [sys.executable, "-m", "sklar", "sample", "m.sklar", "--rows", "2000000000", "--out", "o.csv"]
    worker = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    waited = time.monotonic() + 60
    while not list(tmp_path.glob(".o.csv.*")) and time.monotonic() < waited:
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert not (tmp_path / "o.csv").exists()


ROWS = {
    "plain": "".join(f"{20 + i % 50},{('Bern', 'Rome')[i % 2]}\n" for i in range(60)),
    "all equal": "30,Bern\n" * 60,
    "all outside": "nonsense,Atlantis\n" * 60,
    "huge cells": f"{'9' * 20_000},{'x' * 20_000}\n" * 60,
    "empty": ",\n" * 60,
    "ragged": "1\n" * 30 + "1,2,3,4\n" * 30,
}


@pytest.mark.parametrize("options", [{"method": "binary"}, {"preset": "paper", "dummies": True}, {"method": "mixture"}])
def test_nothing_but_the_noise_depends_on_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    """Same schema, very different rows: the same stages, noise calls, members, types, shapes and certificate."""

    class Log:
        def __init__(self) -> None:
            self.stages: list[Any] = []

        def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
            if name in ("count", "measure"):
                self.stages.append((name, total, unit))

        def advance(self, steps: int) -> None:
            pass

    seen = []
    for name, rows in ROWS.items():
        folder = tmp_path / name
        folder.mkdir()
        people(folder, rows)
        calls: list[Any] = []
        with monkeypatch.context() as patched:
            for kind in ("discrete_gaussian", "discrete_laplace"):
                real = getattr(door, kind)

                def record(scales: Any, sizes: Any, real: Any = real, calls: list[Any] = calls) -> Any:
                    calls.append((sizes.tolist(), scales.tolist() if not calls else None))
                    return real(scales, sizes)

                patched.setattr(door, kind, record)
            log = Log()
            model = sklar.fit(folder / "people.csv", SCHEMA, epsilon=20.0, progress=log, **options)
        model.save(folder / "m.sklar")
        with zipfile.ZipFile(folder / "m.sklar") as archive:
            sizes = {
                member.filename: member.file_size
                for member in archive.infolist()
                if member.filename not in ("model.json", "probabilities.npy")
            }
            document = json.loads(archive.read("model.json"))
        stated = document["certificate"]
        first = [entry for entry in stated["measurements"] if entry["stage"] == 1]
        seen.append((calls, log.stages, sizes, sorted(document), first, stated["epsilon"], str(model.arrow_schema)))
    assert all(outcome == seen[0] for outcome in seen[1:])


def test_no_planted_marker_leaves(tmp_path: Path) -> None:
    """Texts, numbers, column names and a path that occur in the rows only: in no byte of any output."""
    secret = tmp_path / "MARKERPATH"
    secret.mkdir()
    (tmp_path / "s.toml").write_text(TOML)
    rows = "".join(f"8675309{i},MARKERTEXT{i},31415926.5358\n" for i in range(100))
    (secret / "people.csv").write_text("age,city,MARKERCOLUMN\n" + rows)
    ledger = tmp_path / "l.db"
    Ledger(ledger).open_account("people", epsilon=5.0, delta=DELTA)
    command = [sys.executable, "-m", "sklar", "release", str(secret / "people.csv"), "--schema", "s.toml"]
    command += ["--epsilon", "1", "--method", "binary", "--ledger", "l.db", "--out", "o.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    outputs = [done.stdout, done.stderr]
    # A folder that cannot be read as a table: the error may name the path that was given, nothing of the rows.
    (secret / "people.csv").write_bytes((secret / "people.csv").read_bytes() + b'"MARKERTEXT never closed')
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    outputs += [failed.stdout, failed.stderr.replace(str(secret).encode(), b"")]
    for path in tmp_path.iterdir():
        if path.is_file():
            outputs.append(path.read_bytes())
        if path.suffix == ".sklar":
            with zipfile.ZipFile(path) as archive:
                outputs += [archive.read(name) for name in archive.namelist()]
    everything = b"\n".join(outputs)
    for marker in (b"MARKER", b"8675309", b"31415926"):
        assert marker not in everything


ONE = Schema.from_toml('[attributes.x]\ntype = "categorical"\nvalues = ["only"]')
EDGES: dict[str, tuple[Any, Schema]] = {
    "one row": (pa.table({"age": [30], "city": ["Bern"]}), SCHEMA),
    "one attribute": (pa.table({"age": [30] * 10}), Schema(name="t", attributes=SCHEMA.attributes[:1])),
    "one level": (pa.table({"x": ["only"] * 10}), ONE),
    "constant columns": (pa.table({"age": [30] * 500, "city": ["Bern"] * 500}), SCHEMA),
    "nobody": (pa.table({"age": ["?"] * 50, "city": ["Oslo"] * 50}), SCHEMA),
}


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 100.0])
@pytest.mark.parametrize("method", ["binary", "auto"])
@pytest.mark.parametrize("name", EDGES)
def test_numbers_at_the_edge(name: str, method: Any, epsilon: float) -> None:
    table, schema = EDGES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = sklar.fit(table, schema, epsilon=epsilon, method=method)
        rows = model.sample(40, seed=1)
    assert rows.num_rows == 40
    assert tuple(rows.schema.names) == schema.names


def test_an_epsilon_too_small_for_exact_noise_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    Ledger(tmp_path / "l.db").open_account("people", epsilon=1.0, delta=DELTA)
    table = EDGES["constant columns"][0]
    with pytest.raises(BudgetError, match=r"above the largest that can be drawn exactly \(16777216\)\. Use a larger"):
        sklar.fit(table, SCHEMA, epsilon=1e-9, ledger=tmp_path / "l.db")
    assert not Ledger(tmp_path / "l.db").account("people").charges


@pytest.mark.slow
def test_two_thousand_attributes() -> None:
    m = 2_000
    toml = "".join(f'[attributes.x{i}]\ntype = "boolean"\n' for i in range(m))
    generator = np.random.default_rng(1)
    table = pa.table({f"x{i}": generator.random(200) < 0.3 for i in range(m)})
    model = sklar.fit(table, Schema.from_toml(toml), epsilon=1.0, method="mixture")
    assert model.sample(10, seed=1).num_columns == m
