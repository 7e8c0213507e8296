"""Hostile model files: bounds are checked on the bytes, before anything is parsed or unpacked."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sklar
from sklar.errors import ModelError
from sklar.files.archive import load
from sklar.public.description import MAX_JSON, MAX_VALUES, parse
from sklar.public.schema import Schema
from sklar.trust.verify import verify
from tests.trust.forge import forged, opened, packed, rewritten
from tests.trust.forge import put as put_at

SCHEMA = Schema.from_toml('[attributes.x]\ntype = "boolean"\n[attributes.y]\ntype = "categorical"\nvalues = ["a", "b"]')


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("archive") / "m.sklar"
    sklar.fit(pa.table({"x": [True, False] * 50, "y": list("ab") * 50}), SCHEMA, epsilon=1.0, method="binary").save(
        path
    )
    return path


def put(model: Path, to: Path, **members: bytes | None) -> Path:
    """The same file with other members, None for one that is left out."""
    with zipfile.ZipFile(model) as archive:
        contents: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    contents |= {name.replace("__", "."): data for name, data in members.items()}
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in contents.items():
            if data is not None:
                archive.writestr(name, data)
    return to


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b'"' + b"x" * MAX_JSON + b'"', "its description is larger than any model's"),
        (b"[" + b"0," * MAX_VALUES + b"0]", "its description holds more than 300,000 values, as no model's does"),
        (b"[{" * 9 + b"}]" * 9, "its description is nested more than 16 deep"),
        (b"[1" + b"0" * 40 + b"]", "its description holds a number of more than 40 digits"),
        (b'{"a": 1, "a": 2}', "its description has a duplicate key"),
        (b"[NaN]", "its description holds NaN, which is no number"),
        (b"[-Infinity]", "its description holds -Infinity, which is no number"),
    ],
    ids=["large", "many", "deep", "long", "twice", "nan", "infinite"],
)
def test_json_is_bounded_before_it_is_parsed(text: bytes, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        parse(text)


def test_brackets_and_digits_in_texts_are_no_nesting_and_no_numbers() -> None:
    odd = {"[" * 100: '"{[\\"' * 20, "n": "1" * 100, "é\\": ["]}"]}
    assert parse(json.dumps(odd).encode()) == odd


FOUND = {
    "attribute": "x", "tables": 2**62, "scale": 1.0, "threshold": None, "lost_delta": 0.0, "of": "domain",
    "bounds": [0, 9], "at_most": 9,
}  # fmt: skip
# Where in the description, what stands there, and why that is refused.
WRONG = tomllib.loads(Path(__file__).with_name("archive.toml").read_text())["wrong"] + [
    ("certificate.domains", [FOUND], r"domains\.tables must be a whole number of at least 1 and at most 64, got 461"),
    ("blocks", [{}] * 4097, "its blocks must be a list of at most 4,096 entries"),
    ("certificate.measurements.0.scale", None, r"its certificate\.measurements\.scale must be a number"),
    ("schema.attributes", dict.fromkeys(map(str, range(10_001))), "its schema must have at most 10000 attributes"),
]


@pytest.mark.parametrize(("place", "value", "match"), WRONG, ids=[f"{n}-{wrong[0]}" for n, wrong in enumerate(WRONG)])
def test_every_value_is_known_and_bounded(model: Path, tmp_path: Path, place: str, value: Any, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load(forged(model, put_at(place, value), tmp_path / "f.sklar"))


CUTS = "its array 'cuts' must hold 4 values of type float64"
DAMAGED = "is not a Sklar model file, or it is damaged"
MEMBERS: list[tuple[dict[str, bytes | None], str]] = [
    ({"block0__npy": packed(np.array([2**62, 0, 0, -(2**63)]))}, r"its noisy counts must be at most 2\*\*53 in size"),
    ({"x__npy": bytes(140 << 20)}, "it would unpack to 140 MiB, far more than noisy counts do"),
    ({"rows__csv": b"1,2"}, r"unexpected member 'rows\.csv'"),
    ({str(number): b"" for number in range(500)}, "its zip must have at most 420 members and no comment"),
    ({"cuts__npy": packed(np.zeros(3))}, CUTS),
    ({"cuts__npy": packed(np.zeros((4, 1)))}, CUTS),
    ({"cuts__npy": packed(np.zeros((2, 2)))}, CUTS),
    ({"cuts__npy": packed(np.zeros(4, dtype=np.float32))}, CUTS),
    ({"cuts__npy": packed(np.zeros(4)).replace(b"'<f8'", b"'|O' ")}, CUTS),
    ({"cuts__npy": packed(np.zeros(10_000))}, "its array 'cuts' is larger than its schema implies"),
    ({"cuts__npy": None}, DAMAGED),
    ({"model__json": b'{"format": "other"}'}, "its description is not a Sklar model's"),
    ({"model__json": b"[" * 100_000}, "its description is nested more than 16 deep"),
]


@pytest.mark.parametrize(("members", "match"), MEMBERS)
def test_other_members_are_refused(model: Path, tmp_path: Path, members: dict[str, bytes | None], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load(put(model, tmp_path / "f.sklar", **members))


def test_a_member_packed_by_another_method(model: Path, tmp_path: Path) -> None:
    path = put(model, tmp_path / "f.sklar")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x", b"x", compress_type=zipfile.ZIP_LZMA)
    with pytest.raises(ModelError, match="its zip holds a member that no model's does"):
        load(path)


class Payload:
    """Would run when unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("executed-by-pickle"),))


def test_a_pickled_array_executes_nothing(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    np.save(buffer := io.BytesIO(), np.array([Payload()], dtype=object), allow_pickle=True)
    with pytest.raises(ModelError, match="its array 'cuts' is larger than its schema implies"):
        load(put(model, tmp_path / "f.sklar", cuts__npy=buffer.getvalue()))
    assert not Path("executed-by-pickle").exists()


def test_damaged_files_raise_nothing_else(model: Path, tmp_path: Path) -> None:
    """None, no zip, truncated at any length, and flipped bits, most of which are found."""
    with pytest.raises(ModelError, match=r"^model file '.*' does not exist\. Check the path\.$"):
        load(tmp_path / "none.sklar")
    whole, path, generator = model.read_bytes(), tmp_path / "f.sklar", np.random.default_rng(1)
    for content in (b"not a zip", *(whole[:length] for length in (0, 1, 100, len(whole) // 2, len(whole) - 1))):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=DAMAGED):
            load(path)
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[int(generator.integers(len(whole)))] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged)
        try:
            load(path)
        except ModelError as error:
            assert str(path) in str(error)  # noqa: PT017 - most flips are found, none may raise anything else


def wide(model: Path, to: Path) -> Path:
    """Zeros for 1,500 binary attributes: 300 kB that unpack to 54 MB of arrays, and agree with one another."""
    document, arrays = opened(model)
    document["schema"]["attributes"] = {f"{number:04}": {"type": "boolean"} for number in range(1_500)}
    schema = Schema.from_dict(document["schema"])
    cells, d = schema.cells, schema.cells.n_levels
    document["certificate"]["schema_sha256"] = schema.digest
    for entry, tables in zip(document["certificate"]["measurements"], (cells.n_attributes, cells.n_pairs), strict=True):
        entry |= {"scale": 8192.0, "tables": tables, "moves": 2.0 * tables}
    arrays |= {"block0": np.zeros(d, dtype=np.int64), "block1": np.zeros(cells.n_cells, dtype=np.int64)}
    arrays["scales"] = np.full(cells.n_attributes + cells.n_pairs, 8192.0)
    arrays |= {"levels": np.zeros(d), "cuts": np.zeros(d), "factor": np.zeros(d * (d + 1) // 2, dtype=np.float32)}
    return rewritten(document, arrays, to)


def many_scales(model: Path, to: Path) -> Path:
    """A scale of its own for every table, all small: what costs a stranger most to add up."""

    def change(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        scales = arrays["scales"] = np.linspace(0.5, 2.9, arrays["scales"].size).astype(np.float32).astype(float)
        first = len(document["schema"]["attributes"])
        document["certificate"]["measurements"] = [
            {
                "stage": 1, "order": 1 + (at >= first), "tables": 1, "scale": scale, "sensitivity_l1": 2.0,
                "sensitivity_l2": 2**0.5, "parity": False, "moves": 2.0, "reach": 1.0, "kind": "",
            }
            for at, scale in enumerate(scales.tolist())
        ]  # fmt: skip
        document["certificate"]["epsilon"] = 1e6

    return forged(model, change, to)


# The peak of this program alone: `getrusage` may count that of the process which started it.
CHILD = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
from sklar.trust.verify import verify
import sklar.trust.verify.refit
for path in sys.argv[1:]:
    found = verify(path)
    peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    print(found.passed, peak, found.checks[-1].detail.encode())
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux's figures of a process")
def test_a_hostile_file_takes_less_than_a_gigabyte(model: Path, tmp_path: Path) -> None:
    """Small files that are as large in memory as a file may be: parsed, loaded and verified in one process."""
    # 66 kB that once took 1.8 GB; as many objects as are parsed at all, of the kinds that take most memory.
    descriptions = b"[" + b"[]," * (15 << 20) + b"[]]", b'{"a":[' + b'{"b":{}},' * (MAX_VALUES // 3 - 9) + b"{}]}"
    paths = [put(model, tmp_path / f"{n}.sklar", model__json=text) for n, text in enumerate(descriptions)]
    paths += [many_scales(model, tmp_path / "scales.sklar"), wide(model, tmp_path / "wide.sklar")]
    assert all(path.stat().st_size < 10 << 20 for path in paths)
    done = subprocess.run([sys.executable, "-c", CHILD, *map(str, paths)], capture_output=True, text=True, check=True)
    said = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert len(said) == len(paths), done.stderr
    assert max(int(kilobytes) for _, kilobytes, _ in said) < 1 << 20, said
    # What is refused at the door is refused by verify.
    assert said[0][0] == "False"
    assert "its description is larger than any model's" in said[0][2]


def test_a_search_that_found_nothing_stands_beside_one_that_did(tmp_path: Path) -> None:
    age = {"type": "integer", "domain": "private", "low": 0, "high": 100}
    schema = Schema.from_dict({"attributes": {"town": {"type": "categorical", "domain": "private"}, "age": age}})
    table = pa.table({"town": [f"t{row}" for row in range(300)], "age": [row % 90 for row in range(300)]})
    made = sklar.fit(table, schema, epsilon=1.0, method="binary")
    made.save(tmp_path / "m.sklar")
    again = load(tmp_path / "m.sklar")
    values = [[block.values.tolist() for block in each.measured.blocks] for each in (made, again)]
    assert values[0] == values[1]
    assert again.schema.attribute("town").values == ()
    assert verify(tmp_path / "m.sklar").passed
