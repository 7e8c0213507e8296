"""Faults lose nothing: kill -9 at any moment, numbers at the edge, hostile input within bounded memory."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sklar
from sklar.errors import BudgetError
from sklar.ledger import Ledger, cost, covers
from sklar.model import load
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
