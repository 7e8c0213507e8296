"""The tables: Adult and Hospital from a folder, the others generated.

Adult is UCI's (https://archive.ics.uci.edu/dataset/2/adult), Hospital is "HCAHPS - Hospital" of CMS Hospital Compare
(https://data.cms.gov/provider-data/archived-data/hospitals). DSS is not public: `sklar.generate` makes one of its
shape.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from sklar.files.write import write_frames
from sklar.generate import generate, schema_toml
from sklar.public.schema import Schema

DEFAULT_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
GENERATED_ROWS = 200_000
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A table on disk and its public schema."""

    name: str
    title: str
    path: Path
    schema: Schema


def from_folder(name: str, folder: Path | None = None) -> Dataset:
    """Adult or Hospital."""
    folder = folder or DEFAULT_FOLDER
    path, schema = folder / f"{name}.csv", folder / f"{name}.toml"
    if not (path.is_file() and schema.is_file()):
        raise click.ClickException(
            f"this experiment needs {name}.csv and {name}.toml. Download the table as docs/results/README.md says and "
            "give its folder with --data DIR."
        )
    return Dataset(name=name, title=name.title(), path=path, schema=Schema.load(schema))


@contextmanager
def generated(shape: str, rows: int) -> Iterator[Dataset]:
    """A generated table, in a temporary Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{shape}.parquet"
        columns, frames = generate(shape, rows=rows, seed=SEED)
        write_frames(path, columns, frames, None)
        title = {"dss": "DSS-like", "syn1": "Syn 1", "syn2": "Syn 2"}.get(shape, shape)
        yield Dataset(name=shape, title=title, path=path, schema=Schema.from_toml(schema_toml(shape)))


@contextmanager
def opened(name: str, folder: Path | None, rows: int) -> Iterator[Dataset]:
    """Any of the tables; `rows` is for generated ones."""
    if name in ("adult", "hospital"):
        yield from_folder(name, folder)
    else:
        with generated(name, rows) as dataset:
            yield dataset
