"""Nothing but the noise depends on the rows: same schema, very different tables, and all that can be seen is the same.

Compared for every way to release: the files, the members of the model, their types and shapes, the keys of its
description, what is printed, the calls for noise and the random words that they use, and the errors.

Legitimate differences are functions of noisy tables, that is post-processing: every number in the noisy arrays and what
was fitted to them, the second stage's scales, how many components and steps were chosen and whether a fit follows the
choice, repairs, the synthetic values, and the sizes of compressed bytes. Under add-remove the number of rows is such a
number too. How long a stage took is printed on a terminal alone (`test_timings`).
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import sklar
from sklar.budget.ledger import Ledger
from sklar.cli import cli
from sklar.kernel import noise
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from tests.guarantees.people import BASE, FLAG, WAYS, walk
from tests.trust.forge import opened

TOML = BASE + FLAG
SCHEMA = Schema.from_toml(TOML)
N = 60


def parquet(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, row_group_size=7)
    return buffer.getvalue()


# Name of the file, and its bytes; all have N rows.
TABLES: dict[str, tuple[str, bytes]] = {
    name: ("t.csv", b"age,city,ok\n" + rows)
    for name, rows in {
        "ordinary": b"".join(b"%d,%b,%d\n" % (20 + i % 50, (b"Bern", b"Rome")[i % 2], i % 2) for i in range(N)),
        "all equal": b"30,Bern,true\n" * N,
        "all outside": b"nonsense,Atlantis,perhaps\n" * N,
        "huge cells": b"%b,%b,%b\n" % (b"9" * 20_000, b"x" * 300_000, b"y" * 10_000) * N,
        "all nulls": b",,\n" * N,
        "ragged": b"1\n" * (N // 2) + b"1,2,3,4\n" * (N // 2),
        "not text": b"\xff\xfe,\x00\x00,\xc3\n" * N,
    }.items()
} | {
    "parquet nulls": ("t.parquet", parquet(age=pa.nulls(N), city=pa.nulls(N), ok=pa.nulls(N))),
    "parquet lists": ("t.parquet", parquet(age=[[1]] * N, city=[{"x": 1}] * N, ok=[b"\xff"] * N)),
    "parquet numbers": ("t.parquet", parquet(age=[1e300] * N, city=list(range(N)), ok=[True] * N)),
}
ALL_WAYS = WAYS | {"laplace": ["--mechanism", "laplace", "--method", "mixture"]}


def arrays(path: Path) -> dict[str, Any]:
    """Type and shape of every array. Of the fitted components the number is a choice made on noisy tables; where it is
    one, independence, there is nothing that it missed."""
    held = [(name, each) for name, each in opened(path)[1].items() if name != "missed"]
    return {name: (each.dtype, each.ndim if name == "probabilities" else each.shape) for name, each in held}


# Lines that follow from noisy tables; what is compiled depends on what this machine has compiled before.
_BY_NOISE = ("choose:", "fit:", "Model:", "  Chosen on", "  Margins shrunk", "  1 attributes", "compiling")


def public(text: str, *, rows: bool) -> list[str]:
    """Printed lines without what follows from noisy tables, and `rows` or not without the row count."""
    lines = []
    for line in text.splitlines():
        if line.startswith(_BY_NOISE):
            continue
        if "stage 2:" in line:
            line = re.sub(r"noise of scale .* a count", "noise", line)
        if not rows:
            line = re.sub(r"(about |^sample: |^)[\d,]+ (synthetic )?rows", r"\1N \2rows", line)
        lines.append(line)
    return lines


def seen(folder: Path, table: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All that can be seen of one release, less what may differ."""
    folder.mkdir()
    (folder / "s.toml").write_text(TOML)
    name, data = TABLES[table]
    (folder / name).write_bytes(data)
    calls: list[Any] = []
    words: list[int] = []
    real = noise._draw

    def keystream() -> Any:
        """The same random bytes for every run, counted."""
        number, generator = len(words), np.random.default_rng(len(words))
        words.append(0)

        def source(count: int) -> Any:
            words[number] += count
            return generator.integers(0, 256, count, dtype=np.uint8)

        return source

    def draw(p: Any, shift: Any, source: Any, *, gaussian: bool) -> Any:
        # The second stage's scales are chosen on the first's noisy tables.
        calls.append((gaussian, p.size, None if len(calls) >= first else (p.tolist(), shift.tolist())))
        return real(p, shift, source, gaussian=gaussian)

    rows = "add-remove" not in arguments
    # One-way and two-way tables, the number of rows where it is not public, and moments inside bins.
    first = (2 if rows else 3) + ("binary" not in arguments and "laplace" not in arguments)
    with monkeypatch.context() as patched:
        patched.chdir(folder)
        patched.setitem(vars(noise), "_draw", draw)
        patched.setitem(vars(noise), "_keystream", keystream)
        run = ["release", name, "--schema", "s.toml", "--seed", "1", "--out", "o.csv", *arguments]
        done = CliRunner().invoke(cli, run)
    assert done.exit_code == 0, done.output
    stated, _ = opened(folder / "o.sklar")
    out = pa_csv.read_csv(folder / "o.csv")
    return {
        "files": sorted(path.name for path in folder.iterdir() if path.name != name),
        "arrays": arrays(folder / "o.sklar"),
        "keys": {name for name, _ in walk(stated) if not name.startswith("/settings/")},
        "settings": {key: stated["settings"][key] for key in ("method", "preset")},
        "first stage": [entry for entry in stated["certificate"]["measurements"] if entry["stage"] == 1],
        "claim": {key: stated["certificate"][key] for key in ("epsilon", "delta", "neighbors", "public_rows")},
        "calls": calls,
        "words": words[:first],
        "stdout": public(done.stdout, rows=rows),
        "stderr": public(done.stderr, rows=rows),
        "columns": out.column_names,
        "rows": out.num_rows if rows else None,
    }


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("way", ALL_WAYS)
def test_what_can_be_seen_of_a_release_is_the_same_for_all_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, neighbors: str
) -> None:
    arguments = ["--epsilon", "20", "--neighbors", neighbors, *ALL_WAYS[way]]
    reference = seen(tmp_path / "ordinary", "ordinary", arguments, monkeypatch)
    # What is compared is there.
    assert {"count", "measure"} <= {line.partition(":")[0] for line in reference["stderr"]}
    assert all(reference["words"])
    assert len(reference["calls"]) == len(reference["words"]) + (way == "auto")
    for table in TABLES:
        if table != "ordinary":
            assert seen(tmp_path / table, table, arguments, monkeypatch) == reference, table


def test_how_many_rows_there_are_is_printed_only_where_it_is_public() -> None:
    """Under add-remove the number of rows is private: no line and no bar may count them."""

    def counted(rows: int, neighbors: Any) -> list[Any]:
        log = Mock()
        table = pa.table({"age": [30] * rows, "city": ["Bern"] * rows, "ok": [True] * rows})
        sklar.fit(table, SCHEMA, Budget(epsilon=1.0, neighbors=neighbors), method="binary", progress=log)
        return log.method_calls[: log.method_calls.index(call.stage("measure")) + 1]

    assert counted(5, "add-remove") == counted(70_000, "add-remove") == [call.stage("count"), call.stage("measure")]
    assert call.advance(5) in counted(5, "replace-one")


def test_errors_are_the_same_for_all_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a run is refused, and in which words, follows from the schema, the settings and the ledger."""
    monkeypatch.chdir(tmp_path)
    Ledger(tmp_path / "l.db").open_account("people", epsilon=0.5, delta=2.0**-30)
    (tmp_path / "s.toml").write_text(TOML)
    (tmp_path / "wide.toml").write_text(TOML + '[attributes.more]\ntype = "boolean"\n')
    (tmp_path / "draft.toml").write_text(TOML + "reviewed = false\n")
    settings: dict[str, list[str]] = {
        "overspent": ["--schema", "s.toml", "--epsilon", "1", "--ledger", "l.db"],
        "tiny": ["--schema", "s.toml", "--epsilon", "1e-9", "--ledger", "l.db"],
        "no column": ["--schema", "wide.toml", "--epsilon", "1"],
        "not reviewed": ["--schema", "draft.toml", "--epsilon", "1"],
        "neighbors": ["--schema", "s.toml", "--epsilon", "0.1", "--ledger", "l.db", "--neighbors", "add-remove"],
    }
    for name, arguments in settings.items():
        messages = set()
        for file, data in TABLES.values():
            (tmp_path / file).write_bytes(data)
            done = CliRunner().invoke(cli, ["release", file, "--out", "o.csv", *arguments])
            assert done.exception is not None, name
            printed = tuple(public(done.output, rows=True))
            messages.add((type(done.exception), str(done.exception).replace(file, "FILE"), printed))
        assert len(messages) == 1, messages
        drawable = "above the largest that can be drawn exactly (16777216). Use a larger"
        assert (drawable in str(messages)) == (name == "tiny")
    assert not (tmp_path / "o.csv").exists()
    assert not Ledger(tmp_path / "l.db").account("people").charges
