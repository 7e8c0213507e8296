"""A model as a `.sklar` file: a zip of `model.json` and one `.npy` per array.

It holds only what is already private in the formal sense: the schema, noisy tables, what was fitted to them, and the
certificate. Nothing in it is executed when it is read: arrays are read without pickle, and their names, types and
shapes must be those that the schema implies.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Certificate, Measured
from sklar.errors import ModelError, SklarError
from sklar.files.model import Model
from sklar.files.write import check_target, replacing
from sklar.fitting.binary import BinaryCopula
from sklar.fitting.latent import LatentModel
from sklar.fitting.model import Copula
from sklar.kernel.tables import NoisyTables, Plan
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE
from sklar.public.schema import Schema

FORMAT = "sklar-model"
VERSION = 2

# Noise hardly compresses: the highest level takes six times as long as the lowest for one part in twenty.
_LEVEL = 1
_MAX_JSON = 64 << 20
# A file may unpack to the first, or to the second times its size: noise does not pack well.
_MAX_UNPACKED = 1 << 30
_MAX_RATIO = 100
_MAX_STAGES = 100
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_COPULAS: dict[str, type[Copula]] = {kind.kind: kind for kind in (BinaryCopula, LatentModel)}

# Reads one array of the file, by its name, type and size.
Arrays = Callable[[str, type[np.generic], int], NDArray[Any]]


def save(model: Model, path: str | Path) -> None:
    """Write a model to a `.sklar` file, whole or not at all."""
    target = check_target(path, (".sklar",))
    document = {
        "format": FORMAT,
        "version": VERSION,
        "schema": model.schema.to_dict(),
        "n_rows": model.n_rows,
        "public_rows": model.measured.n_rows,
        "stages": [_describe(tables) for tables in model.measured.stages],
        "copula": model.copula.describe(),
        "settings": dict(model.settings),
        "certificate": model.certificate.to_dict(),
    }
    with replacing(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        archive.writestr(_member("model.json"), text.encode(), compresslevel=_LEVEL)
        for name, array in _arrays(model).items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(_member(f"{name}.npy"), buffer.getbuffer(), compresslevel=_LEVEL)


def _arrays(model: Model) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for stage, tables in enumerate(model.measured.stages, start=1):
        arrays[f"stage{stage}_one_way"] = tables.one_way
        arrays[f"stage{stage}_pairs"] = tables.pairs
        arrays[f"stage{stage}_one_way_scales"] = tables.plan.one_way
        arrays[f"stage{stage}_pair_scales"] = tables.plan.pairs
    return arrays | model.copula.arrays()


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
    if document.get("version") not in (1, VERSION):
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
    stages = range(1, len(document["stages"]) + 1)
    model = Model(
        measured=Measured(
            schema=schema,
            stages=tuple(_read_tables(array, schema, document, certificate, stage) for stage in stages),
            certificate=certificate,
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


def _read_copula(array: Arrays, schema: Schema, described: Mapping[str, Any]) -> Copula:
    kind = described["kind"]
    if kind not in _COPULAS:
        raise ModelError(f"its model must be one of {', '.join(_COPULAS)}, got {kind!r}.")
    return _COPULAS[kind].read(schema, described, array)


def _describe(tables: NoisyTables) -> dict[str, Any]:
    return {
        "total": tables.total,
        "total_scale": tables.plan.total,
        "one_way": bool(tables.plan.one_way.size),
        "pairs": bool(tables.plan.pairs.size),
    }


def _read_tables(
    array: Arrays, schema: Schema, document: Mapping[str, Any], certificate: Certificate, stage: int
) -> NoisyTables:
    described, name, cells = document["stages"][stage - 1], f"stage{stage}_", schema.cells
    one_way, two_way = bool(described["one_way"]), bool(described["pairs"])
    pairs = array(name + "pairs", np.int64, cells.n_cells if two_way else 0)
    if two_way and document["version"] == 1:
        # Version 1 laid the same cells out row by row of all levels.
        block = cells.attribute_of_level
        square = np.zeros((cells.n_levels, cells.n_levels), dtype=np.int64)
        square[block[:, None] < block[None, :]] = pairs
        pairs = cells.flat(square)
    plan = Plan(
        total=described["total_scale"],
        one_way=array(name + "one_way_scales", np.float64, cells.n_attributes if one_way else 0),
        pairs=array(name + "pair_scales", np.float64, cells.n_pairs if two_way else 0),
    )
    if not ((plan.scales >= MIN_SCALE) & (plan.scales <= MAX_SCALE)).all():
        raise ModelError("its noise scales must be such as can be drawn exactly.")
    return NoisyTables(
        cells=cells,
        mechanism=certificate.mechanism,
        n_rows=document["public_rows"],
        total=described["total"],
        one_way=array(name + "one_way", np.int64, cells.n_levels if one_way else 0),
        pairs=pairs,
        plan=plan,
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
