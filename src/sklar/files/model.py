"""A fitted release: save, load, sample any number of rows.

A `.sklar` file is a zip of `model.json` and one `.npy` per array. It holds only what is already private in the formal
sense: the schema, noisy tables, what was fitted to them, and the certificate. Nothing in it is executed when it is
read: arrays are read without pickle, and their names, types and shapes must be those that the schema implies.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.answer.query import DEFAULT_LEVEL, Estimate, estimate
from sklar.budget.certificate import Certificate, NoisyTables, above_diagonal
from sklar.budget.plan import Plan
from sklar.draw.blocks import blocks
from sklar.draw.decode import dummy_schema, record_schema
from sklar.draw.sample import BlockSampler, check_draw
from sklar.errors import ModelError, SklarError
from sklar.files.frames import Library, check_library, to_library
from sklar.files.write import SUFFIXES, check_target, replacing, write_frames
from sklar.fitting.binary import BinaryCopula, Repairs
from sklar.fitting.latent import LatentModel
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE
from sklar.machine.progress import SILENT, Progress, watch
from sklar.machine.threads import in_order
from sklar.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FORMAT = "sklar-model"
VERSION = 1

# Noise hardly compresses: the highest level takes six times as long as the lowest for one part in twenty.
_LEVEL = 1
_MAX_JSON = 64 << 20
# A file may unpack to the first, or to the second times its size: noise does not pack well.
_MAX_UNPACKED = 1 << 30
_MAX_RATIO = 100
_MAX_COMPONENTS = 1_000_000
_MAX_STAGES = 100
_EARLIEST = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """Noisy tables of every stage, the copula fitted to them, and what was decided on the way.

    `n_rows` is the size of the table that it stands for: public, or estimated from noisy totals.
    """

    measured: tuple[NoisyTables, ...]
    copula: BinaryCopula | LatentModel
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
        return self.measured[-1].certificate

    @property
    def columns(self) -> pl.Schema:
        """Names and types of the columns that `sample` returns."""
        return dummy_schema(self.schema) if self.dummies else record_schema(self.schema)

    @property
    def dummies(self) -> bool:
        """Whether rows are the paper's 0/1 columns instead of valid records."""
        return isinstance(self.copula, BinaryCopula) and self.copula.dummies

    @overload
    def sample(
        self, rows: int | None = ..., *, seed: int | None = ..., to: Literal["polars"] = ...
    ) -> pl.DataFrame: ...
    @overload
    def sample(self, rows: int | None = ..., *, seed: int | None = ..., to: Literal["pandas"]) -> pd.DataFrame: ...
    @overload
    def sample(self, rows: int | None = ..., *, seed: int | None = ..., to: Literal["arrow"]) -> pa.Table: ...
    def sample(
        self, rows: int | None = None, *, seed: int | None = None, to: Library = "polars"
    ) -> pl.DataFrame | pd.DataFrame | pa.Table:
        """Draw synthetic rows: as many as the original has unless told otherwise. Costs no privacy, however often.

        The same model and seed give the same rows; without a seed, a fresh one is drawn. `to` names the library whose
        table is returned; pandas and Arrow hold every type that the schema states, polars the nearest that it has.
        """
        check_library(to)
        frame = pl.concat(self.sample_batches(rows, seed=seed))
        return to_library(frame, to, None if self.dummies else self.schema)

    def sample_batches(self, rows: int | None = None, *, seed: int | None = None) -> Iterator[pl.DataFrame]:
        """The same rows as `sample`, as a stream of frames."""
        rows, seed = check_draw(rows, seed)
        return in_order(BlockSampler(self.copula, seed).draw, blocks(self.n_rows if rows is None else rows))

    def write(
        self, path: str | Path, rows: int | None = None, *, seed: int | None = None, progress: Progress = SILENT
    ) -> None:
        """Sample straight into a CSV, Parquet, Arrow or NDJSON file, a block at a time."""
        target = check_target(path, SUFFIXES)
        rows, seed = check_draw(rows, seed)
        rows = self.n_rows if rows is None else rows
        sampler = BlockSampler(self.copula, seed, enums=target.suffix.lower() == ".parquet")
        progress.stage("sample", total=rows, unit="rows")
        frames = watch(in_order(sampler.draw, blocks(rows)), progress)
        write_frames(target, sampler.columns, frames, None if self.dummies else self.schema, shown=self.columns)

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
        return [*lines, *self._ruled(), *self._fitted()]

    def _ruled(self) -> list[str]:
        """What the schema's rules say of every record."""
        rules, left_out = self.schema.rules, self.schema.determined
        lines = [f"Rules: '{name}' is determined by '{by}' and was not measured." for name, by in left_out.items()]
        if len(rules) > len(left_out):
            lines.append(f"Rules: {len(rules) - len(left_out):,} forbidden combinations; no record holds one.")
        return lines

    def _fitted(self) -> list[str]:
        settings = self.settings
        if isinstance(self.copula, BinaryCopula):
            repairs = self.copula.repairs
            lines = [
                f"Model: binary copula; {repairs.clipped_pairs:,} pairs outside the possible range were clipped, "
                f"{repairs.negative_eigenvalues:,} negative eigenvalues repaired."
            ]
            if repairs.empty_attributes:
                lines.append(f"  {repairs.empty_attributes} attributes without any count are drawn evenly.")
            return lines
        if settings["kind"] == "independence":
            return ["Model: independence; the noisy tables support no dependence between attributes."]
        lines = [
            f"Model: {settings['kind']}, {self.copula.n_components:,} components from {settings['fits']} fits of "
            f"{settings['steps']} steps; start sd {settings['start_sd']}, shrinkage {settings['shrinkage']}.",
            f"  Chosen on noisy tables alone: held-out error {settings['gain_over_independence']:.0%} below "
            "independence.",
        ]
        if settings["priors"]:
            lines.append(f"  Margins shrunk by a fitted prior: {', '.join(settings['priors'])}.")
        return lines

    def save(self, path: str | Path) -> None:
        """Write the model to a `.sklar` file, whole or not at all."""
        target = check_target(path, (".sklar",))
        document = {
            "format": FORMAT,
            "version": VERSION,
            "schema": self.schema.to_dict(),
            "n_rows": self.n_rows,
            "public_rows": self.measured[0].n_rows,
            "stages": [_describe(tables) for tables in self.measured],
            "copula": _describe_copula(self.copula),
            "settings": dict(self.settings),
            "certificate": self.certificate.to_dict(),
        }
        with replacing(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
            archive.writestr(_member("model.json"), text.encode(), compresslevel=_LEVEL)
            for name, array in self._arrays().items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
                archive.writestr(_member(f"{name}.npy"), buffer.getbuffer(), compresslevel=_LEVEL)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        where = above_diagonal(self.measured_schema)
        arrays: dict[str, NDArray[Any]] = {}
        for stage, tables in enumerate(self.measured, start=1):
            arrays[f"stage{stage}_one_way"] = tables.one_way
            arrays[f"stage{stage}_pairs"] = tables.pairs[where] if tables.plan.pairs.size else tables.pairs.ravel()
            arrays[f"stage{stage}_one_way_scales"] = tables.plan.one_way
            arrays[f"stage{stage}_pair_scales"] = tables.plan.pairs
        if isinstance(self.copula, LatentModel):
            return arrays | {"probabilities": self.copula.probabilities.ravel()}
        return arrays | {
            "levels": self.copula.levels,
            "cuts": self.copula.cuts,
            "factor": self.copula.factor[np.tril_indices(self.measured_schema.n_levels)],
        }


def _claimed(certificate: Certificate) -> str:
    if certificate.claimed_by is None:
        return "Privacy spent"
    rounded = "; values rounded to whole counts" if certificate.rounded else ""
    return f"Privacy claimed by the caller, not checked (measured by '{certificate.claimed_by}'{rounded})"


def load(path: str | Path) -> Model:
    """Read a model from a `.sklar` file."""
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"model file '{path}' does not exist. Check the path.")
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive)
    except SklarError as error:
        raise ModelError(f"'{path}' is not a usable model: {error}") from None
    except Exception as error:
        # Whatever a damaged or hostile file makes zip, JSON or NumPy raise, the user hears one thing.
        raise ModelError(
            f"'{path}' is not a Sklar model file, or it is damaged ({type(error).__name__}). Get an intact copy."
        ) from None


def _member(name: str) -> zipfile.ZipInfo:
    # A fixed time, so that equal models are equal files.
    member = zipfile.ZipInfo(name, date_time=_EARLIEST)
    # A latent model's probabilities shrink by less than a tenth, and take most of the time.
    stored = name == "probabilities.npy"
    member.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    return member


def _read(archive: zipfile.ZipFile) -> Model:
    if archive.getinfo("model.json").file_size > _MAX_JSON:
        raise ModelError("its description is larger than any model's.")
    packed, unpacked = (
        sum(sizes) for sizes in zip(*((each.compress_size, each.file_size) for each in archive.infolist()), strict=True)
    )
    if unpacked > max(_MAX_UNPACKED, _MAX_RATIO * packed):
        raise ModelError(f"it would unpack to {unpacked / 2**30:.1f} GiB, far more than noisy counts do.")
    document = json.loads(archive.read("model.json"))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelError("its description is not a Sklar model's.")
    if document.get("version") != VERSION:
        raise ModelError(
            f"it has format version {document.get('version')!r}, not {VERSION}. Use the Sklar that wrote it."
        )
    schema = Schema.from_dict(document["schema"]).measured

    def array(name: str, kind: type[np.generic], size: int) -> NDArray[Any]:
        return _read_array(archive, name, np.dtype(kind), size)

    certificate = Certificate.from_dict(document["certificate"])
    if certificate.schema_sha256 != schema.digest:
        raise ModelError("its certificate is for another schema.")
    n_rows = document["n_rows"]
    if type(n_rows) is not int or not 1 <= n_rows < 2**63:
        raise ModelError(f"its number of rows must be at least 1, got {n_rows!r}.")
    _require_types(document, certificate)
    model = Model(
        measured=tuple(
            _read_tables(array, schema, document, certificate, stage) for stage in range(1, len(document["stages"]) + 1)
        ),
        copula=_read_copula(array, schema, document["copula"]),
        n_rows=n_rows,
        settings=document["settings"],
    )
    # Uses every setting once: what is missing or of another type is found here and not by a user.
    model.summary()
    return model


def _require_types(document: Mapping[str, Any], certificate: Certificate) -> None:
    """Refuse a description whose values are not of the types that a model's are; whether they agree, `verify` says."""

    def number(value: object) -> bool:
        return type(value) in (int, float) and math.isfinite(cast(float, value))

    def whole(value: object, least: int = 0) -> bool:
        return type(value) is int and least <= value < 2**63

    def known(value: object) -> bool:
        return value is None or whole(value, 1)

    stages, stated = document["stages"], certificate
    right = (
        isinstance(stages, list)
        and 1 <= len(stages) <= _MAX_STAGES
        and all(stage["total"] is None or type(stage["total"]) is int for stage in stages)
        and all(stage["total_scale"] is None or number(stage["total_scale"]) for stage in stages)
        and known(document["public_rows"])
        and known(stated.public_rows)
        and isinstance(document["settings"], dict)
        and isinstance(stated.versions, dict)
        and isinstance(stated.claimed_by, str | None)
        and type(stated.rounded) is bool
        and all(isinstance(text, str) for text in (stated.neighbors, stated.mechanism, stated.composition))
        and all(number(value) for value in (stated.epsilon, stated.delta, stated.spent_epsilon))
        and stated.epsilon > 0
        and 0 < stated.delta < 1
        and all(whole(entry.stage, 1) and whole(entry.tables, 1) for entry in stated.measurements)
        and all(type(entry.order) is int and entry.order in (0, 1, 2) for entry in stated.measurements)
        and all(
            number(value)
            for entry in stated.measurements
            for value in (entry.scale, entry.sensitivity_l1, entry.sensitivity_l2)
        )
        and all(
            isinstance(found.attribute, str)
            and whole(found.tables, 1)
            and (found.threshold is None or whole(found.threshold, 1))
            and number(found.scale)
            and number(found.lost_delta)
            and 0 <= found.lost_delta < 1
            for found in stated.domains
        )
    )
    if not right:
        raise ModelError("its description or its privacy certificate holds values that no model has.")


def _describe_copula(copula: BinaryCopula | LatentModel) -> dict[str, Any]:
    if isinstance(copula, LatentModel):
        return {"kind": "latent", "components": copula.n_components}
    return {"kind": "binary", "dummies": copula.dummies, "repairs": asdict(copula.repairs)}


def _read_copula(
    array: Callable[[str, type[np.generic], int], NDArray[Any]], schema: Schema, described: Mapping[str, Any]
) -> BinaryCopula | LatentModel:
    d = schema.n_levels
    if described["kind"] == "latent":
        components = described["components"]
        if type(components) is not int or not 1 <= components <= _MAX_COMPONENTS:
            raise ModelError(f"its number of components must be from 1 to {_MAX_COMPONENTS}, got {components!r}.")
        flat = array("probabilities", np.float32, components * d)
        return LatentModel(schema=schema, probabilities=flat.reshape(components, d))
    factor = np.zeros((d, d), dtype=np.float32)
    factor[np.tril_indices(d)] = array("factor", np.float32, d * (d + 1) // 2)
    return BinaryCopula(
        schema=schema,
        dummies=bool(described["dummies"]),
        levels=array("levels", np.float64, d),
        cuts=array("cuts", np.float64, d),
        factor=factor,
        repairs=Repairs(**described["repairs"]),
    )


def _describe(tables: NoisyTables) -> dict[str, Any]:
    return {
        "total": tables.total,
        "total_scale": tables.plan.total,
        "one_way": bool(tables.plan.one_way.size),
        "pairs": bool(tables.plan.pairs.size),
    }


def _read_tables(
    array: Callable[[str, type[np.generic], int], NDArray[Any]],
    schema: Schema,
    document: Mapping[str, Any],
    certificate: Certificate,
    stage: int,
) -> NoisyTables:
    described, name = document["stages"][stage - 1], f"stage{stage}_"
    m, d = schema.n_attributes, schema.n_levels
    one_way, two_way = bool(described["one_way"]), bool(described["pairs"])
    # Squares are made only when the file has shown that it holds their cells.
    flat = array(name + "pairs", np.int64, int(d * d - (schema.sizes**2).sum()) // 2 if two_way else 0)
    pairs = np.zeros((d, d) if two_way else (0, 0), dtype=np.int64)
    if two_way:
        pairs[above_diagonal(schema)] = flat
    plan = Plan(
        total=described["total_scale"],
        one_way=array(name + "one_way_scales", np.float64, m if one_way else 0),
        pairs=array(name + "pair_scales", np.float64, m * (m - 1) // 2 if two_way else 0),
    )
    if not ((plan.scales >= MIN_SCALE) & (plan.scales <= MAX_SCALE)).all():
        raise ModelError("its noise scales must be such as can be drawn exactly.")
    return NoisyTables(
        schema=schema,
        n_rows=document["public_rows"],
        total=described["total"],
        one_way=array(name + "one_way", np.int64, d if one_way else 0),
        pairs=pairs,
        plan=plan,
        certificate=certificate,
    )


def _read_array(archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], size: int) -> NDArray[Any]:
    """A one-dimensional array of exactly this type and size; nothing larger is ever read into memory."""
    member = archive.getinfo(f"{name}.npy")
    if member.file_size > 4096 + size * kind.itemsize:
        raise ModelError(f"its array '{name}' is larger than its schema implies.")
    with archive.open(member) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ModelError(f"its array '{name}' is in a format that it should not be in.")
        shape, fortran, stored = np.lib.format.read_array_header_1_0(file)
        if stored != kind or math.prod(shape) != size or len(shape) != 1 or fortran:
            raise ModelError(f"its array '{name}' must hold {size} values of type {kind}.")
        # frombuffer, not read_array: no code path that could ever unpickle. read() also checks the zip's CRC.
        found = np.frombuffer(file.read(), dtype=kind).copy()
    if found.size != size:
        raise ModelError(f"its array '{name}' must hold {size} values of type {kind}.")
    return found
