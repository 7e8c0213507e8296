"""Hostile input: whatever the bytes, a result or one SklarError that says what to do; never a traceback, never a hang.

Seeded mutators, so that a failure can be repeated from its number: a few hundred inputs in the normal set, 2,500 of
each kind (10,000 in all) in the slow one. `coverage_guided` drives the same cases by coverage. What was found is kept
in `FOUND`.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sklar
from sklar.answer.query import answer
from sklar.answer.report import publishable
from sklar.errors import SklarError
from sklar.files.archive import load
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.rows.count import ask_all, packed_columns
from sklar.rows.read import open_source
from sklar.trust.verify import verify

TOML = b"""[table]
name = "people"
[attributes]
age = {type = "integer", edges = [0, 20, 40, 60, 120], missing = "?", outside = "missing"}
city = {type = "categorical", values = ["Bern", "Rome", "a,b"], other = true}
born = {type = "date", edges = ["1900-01-01", "1950-01-01", "2020-01-01"]}
seen = {type = "datetime", low = "2020-01-01T00:00:00", high = "2021-01-01T00:00:00", bins = 4}
income = {type = "real", edges = [0, 1.5, 1e6]}
ok = {type = "boolean"}
"""
SCHEMA = Schema.from_toml(TOML.decode())
CSV = (
    "age,city,born,seen,income,ok\n" + '33,"a,b",1960-05-05,2020-06-01T00:00:00,12.5,true\n?,Rome,,,1e9,no\n' * 4
).encode()
TOKENS = [
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b'""', b"\r\n", b"\n", b"\r", b",", b",,,,,,,", b"'", b"[", b"]", b"=",
    b"nan", b"inf", b"-1", b"1e400", b"9" * 30, b"\xc3\x28", "é".encode(), b"age", b"[attributes.age]\n", b"true",
    b"0x10", b"1979-05-27", b"{", b"}", b"#", b"\\", b"\\u0000", b"\xed\xa0\x80", b"z" * 5000,
]  # fmt: skip


def mutate(data: bytes, generator: np.random.Generator) -> bytes:
    """A few random edits: flips, cuts, repeats, tokens."""
    out = bytearray(data)
    for _ in range(int(generator.integers(1, 6))):
        at = int(generator.integers(len(out) + 1))
        length = int(generator.integers(1, 40))
        choice = int(generator.integers(6))
        if choice == 0 and out:
            out[at % len(out)] ^= 1 << int(generator.integers(8))
        elif choice == 1:
            del out[at : at + length]
        elif choice == 2:
            out[at:at] = out[at : at + length]
        elif choice == 3:
            out[at:at] = TOKENS[int(generator.integers(len(TOKENS)))]
        elif choice == 4:
            out[at : at + length] = generator.bytes(length)
        elif generator.random() < 0.3:
            del out[at:]
    return bytes(out)


def read_schema(path: Path) -> None:
    again = Schema.load(path)
    assert Schema.from_toml(again.to_toml()).digest == again.digest


def read_table(path: Path) -> None:
    measure(path, SCHEMA, Budget(epsilon=1.0))


def read_booleans(path: Path) -> None:
    """What is read of the file is the same as bits and as values."""
    for batch in open_source(path).batches(("b", "n", "a")):
        flags = tuple(Attribute(name=name, kind="boolean") for name in batch.columns)
        for number, column in packed_columns(batch, ask_all(Schema(name="t", attributes=flags))).items():
            held = np.frombuffer(column.buffer(1), dtype=np.uint8)
            bits = np.unpackbits(held, bitorder="little", count=column.offset + batch.height)
            assert bits[column.offset :].astype(bool).tolist() == batch.to_series(number).to_list()


def read_model(path: Path) -> None:
    found = load(path)
    found.sample(3, seed=1)
    found.estimate(*found.schema.names[:2])
    answer(found, "x = 'true' or y = 'a'")
    publishable(found, file_name="m.sklar")


# The file that the bytes of each kind of input are written to, and what reads it.
CASES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "schema": ("s.toml", read_schema),
    "csv": ("t.csv", read_table),
    "parquet": ("t.parquet", read_table),
    "boolean": ("t.parquet", read_booleans),
    "model": ("m.sklar", read_model),
}


def accepted(kind: str, data: bytes, folder: Path) -> bool:
    """Whether it was accepted; a refusal must be one line of plain words, anything else fails the test."""
    name, read = CASES[kind]
    path = folder / name
    path.write_bytes(data)
    if kind == "model":
        verify(path)
    try:
        read(path)
    except SklarError as error:
        text = str(error)
        assert text.strip()
        assert text.rstrip().endswith((".", "E")), text
        return False
    return True


def written(table: pa.Table, **settings: Any) -> bytes:
    """A Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **settings)
    return buffer.getvalue()


def parquet() -> bytes:
    table = pa.table(
        {
            "age": pa.array([33, None, 4], pa.int64()),
            "city": pa.array(["Bern", "x", None]).dictionary_encode(),
            "born": pa.array([0, 1, 10_000], pa.date32()),
            "seen": pa.array([0, None, 10**15], pa.timestamp("us")),
            "income": [0.5, float("nan"), 1e300],
            "ok": [True, None, False],
        }
    )
    return written(table, row_group_size=2)


def small_model(folder: Path) -> bytes:
    path = folder / "m.sklar"
    table = pa.table({"x": [True, False] * 50, "y": list("ab") * 50})
    small = Schema.from_toml(
        '[attributes.x]\ntype = "boolean"\n[attributes.y]\ntype = "categorical"\nvalues = ["a", "b"]'
    )
    sklar.fit(table, small, epsilon=1.0, method="binary").save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small_model(tmp_path_factory.mktemp("fuzz"))


def unzipped(data: bytes) -> dict[str, bytes]:
    """The members of a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(contents: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def described(data: bytes, document: object) -> bytes:
    """The same model with another description."""
    return zipped(unzipped(data) | {"model.json": json.dumps(document).encode()})


def inner(data: bytes, generator: np.random.Generator) -> bytes:
    """The same zip with one member mutated, so that the checksum is right and the content is not."""
    contents = unzipped(data)
    name = sorted(contents)[int(generator.integers(len(contents)))] if generator.random() < 0.5 else "model.json"
    if generator.random() < 0.2:
        # The lowest bit of a noisy count: such a file is a model.
        changed = bytearray(contents["block1.npy"])
        changed[-8] ^= 1
        return zipped(contents | {"block1.npy": bytes(changed)})
    return zipped(contents | {name: mutate(contents[name], generator)})


def values(data: bytes, generator: np.random.Generator) -> bytes:
    """The same model with one value of its description replaced by another type or size."""
    document = json.loads(unzipped(data)["model.json"])
    odd: list[Any] = [None, -1, 0, 10**18, 1e308, "x", [], {}, True, "../../etc/passwd", [[]], float("nan")]
    node: Any = {"": document}
    key: Any = ""
    while isinstance(node[key], dict | list) and node[key] and (key == "" or generator.random() < 0.9):
        node = node[key]
        at = int(generator.integers(len(node)))
        key = list(node)[at] if isinstance(node, dict) else at
    node[key] = odd[int(generator.integers(len(odd)))]
    return described(data, document)


class Child:
    """A process that reads Parquet files, begun again where one of them ends it.

    Polars allocates as many bytes as a page says that it has. Where a damaged page says a number that no machine has,
    the process ends, and nothing is left to raise.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._said = folder / "from_parent", folder / "said"
        self._process: subprocess.Popen[str] | None = None

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()

    def accepted(self, kind: str, data: bytes) -> bool:
        """Whether the file was read; else it was refused, or it ended the process."""
        if self._process is None:
            code = "from tests.fuzz.test_fuzz import answer_parent; answer_parent()"
            with self._said.open("w") as said:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", code, str(self._path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                    # To look up where a panic came from takes longer than all else.
                    env=os.environ | {"RUST_BACKTRACE": "0"},
                )
        self._path.write_bytes(data)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(kind, file=self._process.stdin, flush=True)
        answered = self._process.stdout.readline().strip()
        if not answered:
            self._process.communicate()
            assert "memory allocation of" in self._said.read_text()
            self._process = None
        return answered == "True"


def answer_parent() -> None:
    """What a child does: read the file again whenever it is told to."""
    path = Path(sys.argv[1])
    for line in sys.stdin:
        print(accepted(line.strip(), path.read_bytes(), path.parent), flush=True)  # noqa: T201


def attack(kind: str, seeds: range, model: bytes, folder: Path) -> None:
    mutants: dict[str, Callable[[np.random.Generator, int], bytes]] = {
        "schema": lambda generator, _: mutate(TOML, generator),
        "csv": lambda generator, _: mutate(CSV, generator),
        "parquet": lambda generator, _: mutate(parquet(), generator),
        "boolean": lambda generator, _: damaged(booleans(generator), generator),
        "model": lambda generator, seed: (mutate, inner, values)[seed % 3](model, generator),
    }
    with closing(Child(folder)) as child:
        read = child.accepted if kind in ("parquet", "boolean") else partial(accepted, folder=folder)
        passed = sum(read(kind, mutants[kind](np.random.default_rng(seed), seed)) for seed in seeds)
    # Some must get through: mutants that are all refused at the door test only the door.
    assert 0 < passed < len(seeds)


@pytest.mark.parametrize("kind", CASES)
def test_a_few_hundred_inputs(kind: str, model: bytes, tmp_path: Path) -> None:
    attack(kind, range(100), model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("kind", CASES)
def test_ten_thousand_inputs(kind: str, part: int, model: bytes, tmp_path: Path) -> None:
    each = 2_000 if kind == "boolean" else 500
    attack(kind, range(1_000 + each * part, 1_000 + each * (part + 1)), model, tmp_path)


def booleans(generator: np.random.Generator) -> bytes:
    """A Parquet file of booleans beside numbers."""
    rows = int(generator.integers(1, 200))
    table = pa.table(
        {
            "a": pa.array(generator.random(rows) < 0.5, mask=generator.random(rows) < generator.choice([0.0, 0.4])),
            "n": generator.integers(0, 9, rows),
            "b": generator.random(rows) < 0.1,
        },
        pa.schema([("a", pa.bool_()), ("n", pa.int64()), pa.field("b", pa.bool_(), nullable=False)]),
    )
    return written(
        table,
        compression=str(generator.choice(["none", "none", "snappy", "gzip", "zstd", "lz4", "brotli"])),
        data_page_version=str(generator.choice(["1.0", "2.0"])),
        row_group_size=int(generator.integers(20, 200)),
        data_page_size=int(generator.choice([8, 1 << 20])),
        write_batch_size=int(generator.integers(5, 100)),
        write_statistics=bool(generator.integers(2)),
        store_schema=False,
    )


def damaged(data: bytes, generator: np.random.Generator) -> bytes:
    """The file with some bytes of its pages changed, now and then of its footer, so that much of it is still sound."""
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    first, last = (4, end) if generator.random() < 0.8 else (end, len(data) - 8)
    changed = bytearray(data)
    for _ in range(int(generator.integers(1, 4))):
        at = int(generator.integers(first, last))
        flipped = changed[at] ^ 1 << int(generator.integers(8))
        changed[at] = flipped if generator.random() < 0.5 else int(generator.integers(256))
    return bytes(changed)


@pytest.mark.parametrize("column", [
    pa.array([[1], [2], None]), pa.array([{"x": 1}] * 3), pa.array([b"\xff", b"", None]),
    pa.array([1, 2, 3], pa.duration("s")),
    pa.array([None] * 3), pa.array(["x", None, "x"]).dictionary_encode(), pa.array([2**64 - 1, 0, None], pa.uint64()),
    pa.array([2**62, -(2**62), 0], pa.timestamp("us")),
], ids=lambda column: str(column.type))  # fmt: skip
def test_awkward_parquet(column: Any, tmp_path: Path) -> None:
    assert accepted("parquet", written(pa.table(dict.fromkeys(SCHEMA.names, column)), row_group_size=1), tmp_path)


def test_a_zip_bomb_and_a_path_outside(model: bytes, tmp_path: Path) -> None:
    bomb = {"factor.npy": bytes(200_000_000), "../outside": b"x"}
    assert not accepted("model", zipped(unzipped(model) | bomb, zipfile.ZIP_DEFLATED), tmp_path)
    assert not (tmp_path.parent / "outside").exists()


# Inputs that once escaped, and awkward ones: (kind, bytes). Those of model files are in tests/files/test_model.py.
FOUND: list[tuple[str, bytes]] = [
    ("schema", b'[attributes.x]\ntype = "categorical"\nvalues = [true, false]\n'),
    ("schema", b'[attributes.x]\ntype = "integer"\nedges = [0, 1' + b"0" * 400 + b"]\n"),
    ("schema", b'[attributes.x]\ntype = "datetime"\nedges = ["0001-01-01T00:00:00+23:59", "2000-01-01"]\n'),
    ("schema", b'[attributes.x]\ntype = "real"\nlow = -1e308\nhigh = 1e308\nbins = 3\n'),
    ("csv", CSV.split(b"\n")[0] + b"\n" + b"\xff\xfe," * 3 + b"\n"),
    ("csv", CSV + b"\xff\n"),
    *(("csv", data) for data in (
        CSV.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + CSV, CSV + b'"never closed', CSV + b"1,2\n" + b",,,,,,,,\n",
        CSV.decode().encode("utf-16"), CSV + b"\x00" * 1000, CSV.replace(b"Rome", b"R" * 10_000_000),
        CSV.replace(b"city", b"age"), b"\n" * 100, b'"', CSV.replace(b"33", b"\xff\xfe"),
    )),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FOUND)))
def test_what_was_found_stays_found(number: int, tmp_path: Path) -> None:
    accepted(*FOUND[number], tmp_path)


@pytest.mark.parametrize("part", ["", "certificate"])
@pytest.mark.parametrize(("key", "value"), [("public_rows", 0), ("delta", 0), ("delta", 1)])
def test_what_was_found_in_models(model: bytes, tmp_path: Path, part: str, key: str, value: int) -> None:
    """Values of the right type that no model has: a report of them divided by zero."""
    document = json.loads(unzipped(model)["model.json"])
    (document[part] if part else document)[key] = value
    assert not accepted("model", described(model, document), tmp_path)
