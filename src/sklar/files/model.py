"""A fitted release: save, load, sample any number of rows.

Everything in it is already private in the formal sense: the schema, noisy tables, what was fitted to them, and the
certificate. `files.archive` keeps it in a file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pyarrow as pa

from sklar.answer.query import DEFAULT_LEVEL, Estimate, estimate
from sklar.budget.certificate import Certificate, Measured
from sklar.draw.blocks import blocks
from sklar.draw.decode import Decoder, decode_dummies, dummy_schema, record_schema
from sklar.draw.repair import RecordSampler
from sklar.errors import ModelError
from sklar.files.frames import Library, check_library, to_library
from sklar.files.write import SUFFIXES, check_target, write_batches
from sklar.fitting.model import Copula
from sklar.machine.progress import SILENT, Progress, watch
from sklar.machine.threads import in_order
from sklar.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """Noisy tables of every stage, the copula fitted to them, and what was decided on the way.

    `n_rows` is the size of the table that it stands for: public, or estimated from noisy totals.
    """

    measured: Measured
    copula: Copula
    n_rows: int
    settings: Mapping[str, Any]

    @property
    def schema(self) -> Schema:
        """What is publicly known of the table."""
        return self.copula.schema.whole or self.copula.schema

    @property
    def measured_schema(self) -> Schema:
        """The part of it that was measured: all but the attributes that others determine."""
        return self.copula.schema

    @property
    def certificate(self) -> Certificate:
        """What was spent on this model, in all its stages."""
        return self.measured.certificate

    @property
    def arrow_schema(self) -> pa.Schema:
        """Names and types of the columns that `sample` returns."""
        return dummy_schema(self.schema) if self.dummies else record_schema(self.schema)

    @property
    def dummies(self) -> bool:
        """Whether rows are the paper's 0/1 columns instead of valid records."""
        return self.copula.dummies

    @overload
    def sample(self, rows: int | None = ..., *, seed: int | None = ..., to: Literal["arrow"] = ...) -> pa.Table: ...
    @overload
    def sample(self, rows: int | None = ..., *, seed: int | None = ..., to: Literal["pandas"]) -> pd.DataFrame: ...
    @overload
    def sample(self, rows: int | None = ..., *, seed: int | None = ..., to: Literal["polars"]) -> pl.DataFrame: ...
    def sample(
        self, rows: int | None = None, *, seed: int | None = None, to: Library = "arrow"
    ) -> pa.Table | pd.DataFrame | pl.DataFrame:
        """Draw synthetic rows: as many as the original has unless told otherwise. Costs no privacy, however often.

        The same model and seed give the same rows; without a seed, a fresh one is drawn. `to` names the library whose
        table is returned.
        """
        check_library(to)
        table = pa.Table.from_batches(self.sample_batches(rows, seed=seed), self.arrow_schema)
        return to_library(table, to, None if self.dummies else self.schema)

    def sample_batches(self, rows: int | None = None, *, seed: int | None = None) -> Iterator[pa.RecordBatch]:
        """The same rows as `sample`, as a stream of record batches."""
        rows, seed = check_draw(rows, seed)
        return in_order(BlockSampler(self, seed).draw, blocks(self.n_rows if rows is None else rows))

    def write(
        self, path: str | Path, rows: int | None = None, *, seed: int | None = None, progress: Progress = SILENT
    ) -> None:
        """Sample straight into a CSV or Parquet file, a block at a time."""
        target = check_target(path, SUFFIXES)
        rows, seed = check_draw(rows, seed)
        rows = self.n_rows if rows is None else rows
        # A Parquet file keeps types that the schema states only where no column is held otherwise than it is read.
        plain = all(attribute.output is None for attribute in self.schema.attributes)
        sampler = BlockSampler(self, seed, dictionaries=plain and target.suffix.lower() == ".parquet")
        progress.stage("sample", total=rows, unit="rows")
        batches = watch(in_order(sampler.draw, blocks(rows)), progress)
        write_batches(target, sampler.arrow_schema, batches, None if self.dummies else self.schema)

    def estimate(self, *names: str, level: float = DEFAULT_LEVEL, complete: bool = False) -> Estimate:
        """The noisy table of one or two attributes, averaged over all measurements, with errors and intervals.

        `complete` vouches that every row has a level of every attribute, which makes one-way errors smaller.
        """
        return estimate(self.measured, *names, level=level, complete=complete)

    def summary(self) -> list[str]:
        """What was released and what it cost, in a few lines."""
        certificate, schema = self.certificate, self.schema
        size = f"{self.n_rows:,} rows" if certificate.public_rows is not None else f"about {self.n_rows:,} rows"
        guarded = "content" if certificate.neighbors == "replace-one" else "presence"
        lines = [
            f"Table '{schema.name}': {size}, {schema.n_attributes} attributes, {schema.n_levels} levels.",
            f"{_claimed(certificate)}: epsilon = {certificate.spent_epsilon:.4g}, delta = {certificate.delta:.3g}, "
            f"for the {guarded} of any one row",
            f"  ({certificate.neighbors} neighbors, {certificate.mechanism} noise, "
            f"{certificate.composition} composition):",
        ]
        for finding in certificate.domains:
            found = schema.attribute(finding.attribute)
            if finding.threshold is None:
                kept = f"{found.n_values:,} bins by {finding.tables} noisy tables on a grid"
            else:
                kept = f"{len(found.values):,} categories with at least {finding.threshold:,} rows after noise"
            lines.append(f"  domain of '{found.name}' found: {kept}, noise of scale {finding.scale:.4g} a count")
        for (stage, order), group in groupby(certificate.measurements, key=lambda entry: (entry.stage, entry.order)):
            entries = list(group)
            scales = sorted({f"{entry.scale:.4g}" for entry in entries}, key=float)
            tables = f"{sum(entry.tables for entry in entries):,} " if order else ""
            spread = scales[0] if len(scales) == 1 else f"{scales[0]} to {scales[-1]}"
            lines.append(f"  stage {stage}: {tables}{entries[0].what}, noise of scale {spread} a count")
        return [*lines, *self._ruled(), *self.copula.summary(self.settings)]

    def _ruled(self) -> list[str]:
        """What the schema's rules say of every record."""
        rules, left_out = self.schema.rules, self.schema.determined
        lines = [f"Rules: '{name}' is determined by '{by}' and was not measured." for name, by in left_out.items()]
        if len(rules) > len(left_out):
            lines.append(f"Rules: {len(rules) - len(left_out):,} forbidden combinations; no record holds one.")
        return lines

    def save(self, path: str | Path) -> None:
        """Write the model to a `.sklar` file, whole or not at all."""
        # Imported here: a file is read into a model, so that module imports this one.
        from sklar.files.archive import save

        save(self, path)


def _claimed(certificate: Certificate) -> str:
    if certificate.claimed_by is None:
        return "Privacy spent"
    rounded = "; values rounded to whole counts" if certificate.rounded else ""
    return f"Privacy claimed by the caller, not checked (measured by '{certificate.claimed_by}'{rounded})"


class BlockSampler:
    """Draws any block of the rows of a model and a seed, here or on another machine, in any thread.

    `sample` puts together what `draw` makes of all of `blocks(rows)`: whoever draws some of them draws the same rows.
    `dictionaries` is the decoder's.
    """

    def __init__(self, model: Model, seed: int, *, dictionaries: bool = False) -> None:
        self._seed = seed
        self._schema = model.schema
        self._sampler = RecordSampler(model.copula)
        self._decoder = None if model.dummies else Decoder(model.schema, dictionaries=dictionaries)
        self.arrow_schema = model.arrow_schema if self._decoder is None else self._decoder.arrow_schema

    def draw(self, block: tuple[int, int]) -> pa.RecordBatch:
        """The rows of a block, given as its number and its size."""
        number, rows = block
        drawn = self._sampler.draw(self._seed, number, rows)
        if self._decoder is None:
            return decode_dummies(drawn.view(np.bool_), self._schema)
        # A stream of its own, so that where a value lies in its bin says nothing about the copula's draw.
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([self._seed, number, 1])))
        return self._decoder.decode(self._schema.complete(drawn), generator)


def check_draw(rows: int | None, seed: int | None) -> tuple[int | None, int]:
    """The number of rows to draw (None: as many as the original has) and a seed, fresh where none is given."""
    if rows is not None and (type(rows) is not int or rows < 1):
        raise ModelError(f"rows must be a whole number of at least 1, got {rows!r}.")
    if seed is None:
        seed = secrets.randbits(63)
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise ModelError(f"seed must be a whole number from 0 to 2**64 - 1, got {seed!r}.")
    return rows, seed
