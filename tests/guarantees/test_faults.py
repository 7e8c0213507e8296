"""Faults lose nothing: kill -9 at any moment, numbers at the edge, hostile input within bounded memory."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sklar
from sklar.answer.report import publishable
from sklar.budget.ledger import Ledger, check_releases
from sklar.budget.ledger.anchor import Anchor, Mark
from sklar.files.archive import load
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.trust.verify import verify_model
from tests.guarantees.people import BASE
from tests.trust.forge import opened

SCHEMA = Schema.from_toml(BASE)
DELTA = 2.0**-30


def people(folder: Path) -> Path:
    (folder / "s.toml").write_text(BASE)
    rows = "".join(f"{20 + i % 50},{('Bern', 'Rome', '?')[i % 3]}\n" for i in range(300))
    (folder / "people.csv").write_text("age,city\n" + rows)
    return folder


# Many releases in one process, so that a kill falls on every part of one and not on the imports.
WORKER = """
import sys
from sklar.budget.ledger import Ledger
from sklar.release import fit
from sklar.public.schema import Schema
schema, book = Schema.load("s.toml"), Ledger("l.db", key="key")
for i in range(1000):
    model = fit("people.csv", schema, epsilon=0.01, method=sys.argv[2 + i % 2], ledger=book)
    model.save(f"{sys.argv[1]}-{i}.sklar")
    model.write(f"{sys.argv[1]}-{i}.csv", 50, seed=1)
    print("done", flush=True)
"""


def killed(folder: Path, code: str, *arguments: str, each: int, wait: float) -> list[str]:
    """What a worker printed until it was killed: after `each` lines to warm up and as many to see how long they take on
    this machine now, at this share of that time.
    """
    worker = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    lines = [worker.stdout.readline() for _ in range(each)]
    since = time.monotonic()
    lines += [worker.stdout.readline() for _ in range(each)]
    time.sleep(wait * (time.monotonic() - since))
    worker.send_signal(signal.SIGKILL)
    return lines + worker.communicate()[0].splitlines(keepends=True)


def kill_at_random(folder: Path, kills: int, seed: int, methods: tuple[str, str] = ("mixture", "binary")) -> int:
    """Kill a worker again and again; then no file is half-written and every model is covered by charges of its own.

    The ledger has an anchor and a key, and no kill wedges it. How many charges were lost.
    """
    anchor = folder / "anchor.db"
    Ledger(folder / "l.db", key=folder / "key").open_account("people", epsilon=1000.0, delta=DELTA, anchor=anchor)
    generator = np.random.default_rng(seed)
    for number in range(kills):
        # One release of each kind to warm up, and the kill falls within the next two.
        lines = killed(folder, WORKER, str(number), *methods, each=2, wait=float(generator.uniform(0.0, 1.0)))
        assert lines[:4] == ["done\n"] * 4
    book = Ledger(folder / "l.db", key=folder / "key")
    assert book.standing().problems == ()
    # As a custodian would go on: the anchor is told of what the last kill left untold.
    book.require("people", Budget(epsilon=0.01))
    entries, account = book.history(), book.account("people")
    mark = Anchor(str(anchor)).last(entries[0].body["ledger"])
    assert mark == Mark(entries=len(entries), head=entries[-1].head)
    models = [load(path) for path in sorted(folder.glob("*.sklar"))]
    unused = [entry.cost for entry in account.charges]
    for model in models:
        measured = model.certificate.budget.cost(model.certificate.spend)
        unused.remove(next(charge for charge in unused if charge.covers(measured)))
    assert len({model.certificate.receipt for model in models}) == len(models)
    assert check_releases("l.db", entries, (), [(str(i), model.measured) for i, model in enumerate(models)]).passed
    # A killed run may lose a charge, at most one each; no model is without one.
    assert 0 <= len(unused) <= kills
    assert len(models) >= 4 * kills
    assert {len(path.read_text().splitlines()) for path in folder.glob("*-*.csv")} == {51}
    return len(unused)


def test_killed_at_random_points(tmp_path: Path) -> None:
    # Of one kind, whose processes are ready sooner; what is charged and written is the same.
    kill_at_random(people(tmp_path), kills=3, seed=1, methods=("mixture", "mixture"))
    # A run after that works.
    book = Ledger(tmp_path / "l.db", key=tmp_path / "key")
    sklar.fit(tmp_path / "people.csv", SCHEMA, epsilon=0.1, method="mixture", ledger=book)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_killed_two_hundred_times(tmp_path: Path, part: int) -> None:
    # Some kills fell between a charge and its model: that is where they hurt.
    assert kill_at_random(people(tmp_path), kills=52, seed=100 + part) > 0


# Nothing but charges, so that a kill falls between a ledger and its anchor.
CHARGER = """
from sklar.budget.ledger import Ledger
from sklar.kernel.theorems import Budget, Spend
book = Ledger("l.db", key="key")
while True:
    receipt = book.charge("people", Budget(epsilon=0.001), Spend.of([1e6], [3])).receipt
    print(receipt.entry, receipt.head, flush=True)
"""


def kill_charges(folder: Path, kills: int, seed: int) -> int:
    """Kill a process that charges again and again; what it was told is charged is, and the next one goes on.

    How many kills left the anchor behind the ledger.
    """
    book, anchor = Ledger(folder / "l.db", key=folder / "key"), Anchor(str(folder / "anchor.db"))
    book.open_account("people", epsilon=1000.0, delta=DELTA, anchor=folder / "anchor.db")
    generator = np.random.default_rng(seed)
    told, behind = [], 0
    for _ in range(kills):
        told += killed(folder, CHARGER, each=1, wait=float(generator.uniform(0.0, 2.0)))
        entries = book.history()
        mark = anchor.last(entries[0].body["ledger"])
        assert mark is not None
        # A mark is never ahead of the ledger: that would wedge it. One charge may be untold.
        assert len(entries) - mark.entries in (0, 1)
        behind += len(entries) - mark.entries
    heads = {str(entry.number): entry.head for entry in book.history()}
    whole = [line.split() for line in told if line.endswith("\n")]
    assert all(heads[number] == head for number, head in whole)
    assert len(whole) <= len(heads) - 2 <= len(told) + kills
    return behind


@pytest.mark.parametrize(("parts", "kills"), [(1, 3), pytest.param(10, 20, marks=pytest.mark.slow)])
def test_killed_while_charging(tmp_path: Path, parts: int, kills: int) -> None:
    behind = 0
    for part in range(parts):
        (tmp_path / str(part)).mkdir()
        behind += kill_charges(tmp_path / str(part), kills=kills, seed=part)
    # Of many kills some fell between the two places.
    assert behind > 0 or parts == 1


def test_a_killed_sample_leaves_no_file_under_its_name(sound: Path) -> None:
    command = [sys.executable, "-m", "sklar", "sample", "sound.sklar", "--rows", "2000000000", "--out", "o.csv"]
    worker = subprocess.Popen(command, cwd=sound, stderr=subprocess.DEVNULL)
    while not list(sound.glob(".o.csv.*")):
        assert worker.poll() is None
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert not (sound / "o.csv").exists()


# Memory that hostile input may take beyond what the program has when it is ready: the address space is cut there.
ROOM = 700 << 20
LIMITED = """
import resource, sys
import pyarrow.csv, pyarrow.parquet, scipy.special
from sklar.kernel.theorems import Budget
from sklar.errors import SklarError
from sklar.files.archive import load
from sklar.release import measure
from sklar.public.schema import Schema
from sklar.trust.verify import verify
import pyarrow as pa

pa.set_cpu_count(2)
pa.set_io_thread_count(2)
load("sound.sklar").sample(10, seed=1)
verify("sound.sklar")
schema = Schema.load("s.toml")
measure("people.csv", schema, Budget(epsilon=1.0))
pages = int(open("/proc/self/statm").read().split()[0])
room = pages * resource.getpagesize() + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for name in sys.argv[2:]:
    try:
        if name.endswith(".sklar"):
            load(name)
        else:
            measure(name, schema, Budget(epsilon=1.0))
        print("accepted")
    except SklarError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, its schema and a model of it."""
    folder = people(tmp_path_factory.mktemp("hostile"))
    sklar.fit(folder / "people.csv", SCHEMA, epsilon=1.0, method="mixture").save(folder / "sound.sklar")
    return folder


def zip_of(path: Path, **changes: Any) -> None:
    """The sound model with some members replaced by as many zeros or by these bytes."""
    with zipfile.ZipFile(path.parent / "sound.sklar") as archive:
        contents: dict[str, Any] = {name: archive.read(name) for name in archive.namelist()}
    contents |= {f"{name}.npy" if name != "model" else "model.json": content for name, content in changes.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in contents.items():
            with archive.open(name, "w") as member:
                member.writelines([content] if isinstance(content, bytes) else repeat(bytes(1 << 20), content >> 20))


def declared(shape: str) -> bytes:
    """An array file that declares a shape and holds nothing."""
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def huge_levels(folder: Path) -> bytes:
    """The description of a model of 20,000 levels, whose square would take 3.2 GB."""
    document, _ = opened(folder / "sound.sklar")
    document["schema"]["attributes"]["city"]["values"] = [str(i) for i in range(19_990)]
    document["certificate"]["schema_sha256"] = Schema.from_dict(document["schema"]).digest
    return json.dumps(document).encode()


def one_line(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"age,city\n")
        file.truncate(900 << 20)


def packed_line(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(b"age,city\n")
        for _ in range(900):
            packed.write(b'"' + bytes((1 << 20) - 1))


CELLS = b"9" * 10_000_000 + b",x\n" + b"30," + b"y" * 10_000_000 + b"\n"
# How each is made, the end of its name, and what is said of it.
HOSTILE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "array of 720 MB": (lambda path: zip_of(path, block1=720 << 20), "sklar", "far more than noisy counts do"),
    "description of 720 MB": (lambda path: zip_of(path, model=720 << 20), "sklar", "larger than any model's"),
    "declared shape": (lambda path: zip_of(path, block1=declared("(1000000000000,)")), "sklar", "must hold"),
    "right shape, no data": (lambda path: zip_of(path, block1=declared("(12,)")), "sklar", "must hold"),
    "huge levels": (lambda path: zip_of(path, model=huge_levels(path.parent)), "sklar", "must hold"),
    "10 MB cells": (lambda path: path.write_bytes(b"age,city\n" + CELLS * 8), "csv", "accepted"),
}
SLOW: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "one line of 900 MB": (one_line, "csv", "accepted"),
    "many members": (lambda path: zip_of(path, **{f"m{i}": 300 << 20 for i in range(4)}), "sklar", "to 1,200 MiB"),
    "gzip of 900 MB": (packed_line, "csv.gz", "accepted"),
}


@pytest.mark.parametrize("kinds", [[*HOSTILE], *(pytest.param([kind], marks=pytest.mark.slow) for kind in SLOW)])
def test_hostile_input_takes_bounded_memory(sound: Path, kinds: list[str]) -> None:
    """One after the other, in one process: to start one takes longer than to read any of them."""
    inputs = [(HOSTILE | SLOW)[kind] for kind in kinds]
    names = [f"bad{number}.{ending}" for number, (_, ending, _) in enumerate(inputs)]
    for name, (make, _, _) in zip(names, inputs, strict=True):
        make(sound / name)
    command = [sys.executable, "-c", LIMITED, str(ROOM), *names]
    done = subprocess.run(command, cwd=sound, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for kind, (_, _, message), line in zip(kinds, inputs, done.stdout.splitlines(), strict=True):
        assert message in line, kind


ONE = Schema.from_toml('[attributes.x]\ntype = "categorical"\nvalues = ["only"]')
EDGES: dict[str, tuple[Any, Schema]] = {
    "one row": (pa.table({"age": [30], "city": ["Bern"]}), SCHEMA),
    "one attribute": (pa.table({"age": [30] * 10}), Schema(name="t", attributes=SCHEMA.attributes[:1])),
    "one level": (pa.table({"x": ["only"] * 10}), ONE),
    "constant columns": (pa.table({"age": [30] * 500, "city": ["Bern"] * 500}), SCHEMA),
    "constant booleans": (
        pa.table({name: [True] * 50 for name in "xy"}),
        Schema.from_toml("".join(f'[attributes.{name}]\ntype = "boolean"\n' for name in "xy")),
    ),
    "nobody": (pa.table({"age": ["?"] * 50, "city": ["Oslo"] * 50}), SCHEMA),
}


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1000.0])
@pytest.mark.parametrize("method", ["binary", "auto"])
@pytest.mark.parametrize("name", EDGES)
def test_numbers_at_the_edge(name: str, method: Any, epsilon: float) -> None:
    table, schema = EDGES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = sklar.fit(table, schema, epsilon=epsilon, method=method)
        rows = model.sample(40, seed=1)
    assert rows.height == 40
    assert tuple(rows.columns) == schema.names
    found = verify_model(model)
    assert found.passed, found.lines()
    assert publishable(model, file_name="m.sklar")


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("method", ["binary", "mixture"])
def test_tables_without_noise(method: Any, neighbors: Any) -> None:
    """Laplace noise at epsilon 1,000 is all zeros but for a chance below 1e-60: tables are exact, and independent."""
    table, schema = EDGES["constant booleans"]
    model = sklar.fit(table, schema, Budget(epsilon=1000.0, mechanism="laplace", neighbors=neighbors), method=method)
    assert model.sample(40, seed=1).to_dict(as_series=False) == {name: [True] * 40 for name in "xy"}


def test_a_tiny_epsilon_on_many_attributes() -> None:
    """As many attributes and levels as Adult has (14 and 194): noise of scale 8 million a count, rows valid all."""
    sizes = [9, 16, 7, 15, 6, 5, 2, 42, 10, 10, 10, 10, 10, 42]
    values = {f"a{i}": tuple(map(str, range(size))) for i, size in enumerate(sizes)}
    attributes = (Attribute(name=name, kind="categorical", values=own) for name, own in values.items())
    schema, generator = Schema(name="wide", attributes=tuple(attributes)), np.random.default_rng(1)
    table = pa.table({name: generator.choice(own, 500) for name, own in values.items()})
    for method in ("auto", "binary"):
        model = sklar.fit(table, schema, epsilon=1e-5, method=method)
        assert min(entry.scale for entry in model.certificate.measurements) > 1e6
        rows = model.sample(100, seed=1)
        assert all(set(rows[name].to_list()) <= {*own} for name, own in values.items())
        assert verify_model(model).passed


@pytest.mark.slow
def test_two_thousand_attributes() -> None:
    m = 2_000
    toml = "".join(f'[attributes.x{i}]\ntype = "boolean"\n' for i in range(m))
    generator = np.random.default_rng(1)
    table = pa.table({f"x{i}": generator.random(200) < 0.3 for i in range(m)})
    model = sklar.fit(table, Schema.from_toml(toml), epsilon=1.0, method="mixture")
    assert model.sample(10, seed=1).width == m
