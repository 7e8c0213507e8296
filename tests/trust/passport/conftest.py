"""One small release with every type of column and hostile names, published once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import sklar
from sklar.public.description import toml_key
from sklar.public.schema import Schema
from tests.cli.conftest import call

EVIL = 'a|b`<script>"\\*_[x](y) : {'
SCHEMA = Schema.from_toml(Path(__file__).with_name("people.toml").read_text().replace("EVIL", toml_key(EVIL)))


def table(rows: int = 400) -> pl.DataFrame:
    of: dict[str, Callable[[int], object]] = {
        "age": lambda row: str(row % 99) if row % 7 else "?",
        "sex": lambda row: ("F", "M", "X")[row % 3],
        EVIL: lambda row: (1, 2, None)[row % 3],
        "height": lambda row: 1.0 + (row % 150) / 100,
        "born": lambda row: f"{1 + row % 28:02}.03.19{row % 100:02}",
        "seen": lambda row: dt.datetime(2020, 1 + row % 12, 5, tzinfo=dt.UTC),
        "rises": lambda row: dt.time(5 + row % 4, 30),
        "sleeps": lambda row: dt.timedelta(hours=4 + row % 4),
        "insured": lambda row: ("N", "Y")[row % 2],
    }
    return pl.DataFrame({name: [value(row) for row in range(rows)] for name, value in of.items()})


PUBLISHER = ("--publisher", EVIL, "--license", "CC-BY-4.0", "--url", "https://example.org/data/",
             "--date", "2026-03-31", "--contact", "info@example.org")  # fmt: skip


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "private-name-of-a-file.sklar"
    sklar.fit(table(), SCHEMA, epsilon=5.0, method="binary").save(path)
    return path


@pytest.fixture(scope="session")
def folder(model_file: Path) -> Path:
    """A folder that was published by the command, signed, with all that a publisher can state."""
    out, key = model_file.parent / "published", model_file.parent / "k.key"
    call("sign", "--new-key", key, cwd=out.parent)
    call("publish", model_file, "--out", out, "--rows", "150", "--sign", key, *PUBLISHER, cwd=out.parent)
    return out
