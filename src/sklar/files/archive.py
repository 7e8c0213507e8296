"""A model as a `.sklar` file: a zip of `model.json` and one `.npy` per array.

It holds only what is already private in the formal sense: the schema, noisy tables, what was fitted to them, and the
certificate. Nothing in it is executed when it is read: arrays are read without pickle, and their names, types and
shapes must be those that the schema implies. Nothing else may be in it: no further member, key or byte of an array, and
no comment. (`trust.verify` also refuses what a zip can hold between its members.)
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Certificate, Measured
from sklar.budget.search import Answer, fits
from sklar.errors import ModelError
from sklar.files.known import MAX_SEARCH_CELLS, require_known
from sklar.files.model import Model
from sklar.files.write import check_target, replacing
from sklar.fitting.latent import LatentModel
from sklar.fitting.protocols import Copula
from sklar.kernel.tables import MANY_CELLS, NoisyTables, Plan
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE
from sklar.kernel.triples import NoisyScores, NoisyTriples, Triples
from sklar.machine.spill import room_for
from sklar.paper.gaussian import BinaryCopula
from sklar.public.description import open_model, written
from sklar.public.schema import Schema

FORMAT = "sklar-model"
LINKED_FORMAT = "sklar-linked"
VERSION = 3

# Noise hardly compresses: the highest level takes six times as long as the lowest for one part in twenty.
LEVEL = 1
# Counts beyond this are not whole numbers in double precision, nor anybody's counts.
MAX_COUNT = 2**53
_AT_ONCE = 1 << 20
_STREAMED = 1 << 26
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_COPULAS: dict[str, type[Copula]] = {kind.kind: kind for kind in (BinaryCopula, LatentModel)}

# Reads one array of the file, by its name, type and size.
Arrays = Callable[[str, type[np.generic], int], NDArray[Any]]


def save(model: Model, path: str | Path) -> None:
    """Write a model to a `.sklar` file, whole or not at all."""
    target = check_target(path, (".sklar",))
    with replacing(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member("model.json"), written(describe(model)), compresslevel=LEVEL)
        write_arrays(archive, arrays_of(model))


def write_arrays(archive: zipfile.ZipFile, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write flat arrays to a model file, one member each."""
    for name, array in arrays.items():
        if array.nbytes > _STREAMED:
            _stream(archive, name, array)
            continue
        buffer = io.BytesIO()
        buffer.write(_header(array.dtype, array.size))
        buffer.write(np.ascontiguousarray(array).data)
        archive.writestr(member(f"{name}.npy"), buffer.getbuffer(), compresslevel=LEVEL)


def _stream(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    """Write a large array piece by piece: as one text it would be in memory twice."""
    info, header = member(f"{name}.npy"), _header(array.dtype, array.size)
    info.file_size = len(header) + array.nbytes
    # What `writestr` sets; `open` takes no level.
    info._compresslevel = LEVEL  # type: ignore[attr-defined]
    content = np.ascontiguousarray(array).view(np.uint8)
    with archive.open(info, "w") as file:
        file.write(header)
        for start in range(0, len(content), _STREAMED):
            file.write(content[start : start + _STREAMED].data)


def describe(model: Model) -> dict[str, Any]:
    """What the file says of a model in JSON."""
    triples, scores = model.measured.triples, model.measured.scores
    # Keys that a model without three-way tables or scores lacks, as those of earlier releases do.
    chosen: dict[str, Any] = {} if triples is None else {"triples": {"tables": len(triples.scales)}}
    if scores is not None:
        chosen["scores"] = {"tables": scores.scores.size, "scale": scores.scale}
    return {
        "format": FORMAT,
        "version": VERSION,
        "schema": model.schema.to_dict(),
        "n_rows": model.n_rows,
        "public_rows": model.measured.n_rows,
        "stages": [_describe(tables) for tables in model.measured.stages],
        "copula": model.copula.describe(),
        "settings": dict(model.settings),
        "certificate": model.certificate.to_dict(),
        "answers": [
            {"texts": dict(answer), "cells": []}
            if isinstance(answer, Mapping)
            else {"texts": None, "cells": [table.size for table in answer]}
            for answer in model.measured.answers
        ],
        **chosen,
    }


def arrays_of(model: Model) -> dict[str, NDArray[Any]]:
    """The arrays that the file holds of a model, flat, in the order of its members."""
    arrays: dict[str, NDArray[Any]] = {}
    for stage, tables in enumerate(model.measured.stages, start=1):
        arrays[f"stage{stage}_one_way"] = tables.one_way
        arrays[f"stage{stage}_pairs"] = tables.pairs
        arrays[f"stage{stage}_one_way_scales"] = tables.plan.one_way
        arrays[f"stage{stage}_pair_scales"] = tables.plan.pairs
        if tables.plan.trios.size:
            arrays[f"stage{stage}_trios"] = tables.trios
            arrays[f"stage{stage}_trio_scales"] = tables.plan.trios
    triples = model.measured.triples
    if triples is not None:
        arrays["triples_attributes"] = triples.triples.attributes.ravel()
        arrays["triples_coarse"] = triples.triples.coarse
        arrays["triples_scales"] = triples.scales
        arrays["triples"] = triples.counts
    if model.measured.scores is not None:
        arrays["scores"] = model.measured.scores.scores
    searched = [table for answer in model.measured.answers if not isinstance(answer, Mapping) for table in answer]
    if searched:
        arrays["search"] = np.concatenate(searched)
    return arrays | model.copula.arrays()


def load(path: str | Path) -> Model:
    """Read a model from a `.sklar` file."""
    with open_model(path) as (archive, document):
        return _read(archive, document)


def is_linked(path: str | Path) -> bool:
    """Whether a file calls itself a model of linked tables. Whoever loads it finds out whether it is one."""
    try:
        with open_model(path) as (_archive, document):
            return bool(document.get("format") == LINKED_FORMAT)
    except ModelError:
        return False


def member(name: str) -> zipfile.ZipInfo:
    """How a member of this name stands in the zip."""
    # A fixed time, so that equal models are equal files.
    found = zipfile.ZipInfo(name, date_time=_EARLIEST)
    # A latent model's probabilities shrink by less than a tenth, and take most of the time.
    stored = name == "probabilities.npy"
    found.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    return found


def _read(archive: zipfile.ZipFile, document: dict[str, Any]) -> Model:
    if document.get("format") == LINKED_FORMAT:
        raise ModelError("it is a model of linked tables: sample and verify read it, and sklar.load_linked does.")
    if document.get("format") != FORMAT:
        raise ModelError("its description is not a Sklar model's.")
    if document.get("version") not in range(1, VERSION + 1):
        raise ModelError(
            f"it has format version {document.get('version')!r:.40}, not {VERSION}. Use the Sklar that wrote it."
        )
    require_known(document, range(1, VERSION + 1))
    whole = Schema.from_dict(document["schema"])
    whole.require_found()
    schema, read = whole.measured, {"model.json"}

    def array(name: str, kind: type[np.generic], size: int) -> NDArray[Any]:
        read.add(f"{name}.npy")
        return read_array(archive, name, _width(archive, name, np.dtype(kind), size), size)

    certificate = _read_certificate(document)
    if certificate.schema_sha256 != schema.digest:
        raise ModelError("its certificate is for another schema.")
    if certificate.read_from_rows != whole.read_from_rows:
        raise ModelError("its certificate and its schema name different attributes as read from the rows.")
    stages = range(1, len(document["stages"]) + 1)
    model = Model(
        measured=Measured(
            schema=schema,
            stages=tuple(_read_tables(array, schema, document, certificate, stage) for stage in stages),
            certificate=certificate,
            answers=_read_answers(array, schema, document, certificate),
            triples=_read_triples(array, schema, document),
            scores=_read_scores(array, schema, document),
        ),
        copula=_read_copula(array, schema, document["copula"]),
        n_rows=document["n_rows"],
        settings=document["settings"],
    )
    unread = sorted(set(archive.namelist()) - read)
    if unread:
        raise ModelError(f"it holds '{unread[0]!s:.60}', which no model does.")
    odd = [name for name in document["settings"].get("priors", {}) if name not in schema.names]
    if odd:
        raise ModelError(f"its settings speak of '{odd[0]!s:.60}', which is no attribute.")
    # Uses every setting once: what is missing or of another type is found here and not by a user.
    model.summary()
    return model


def _read_certificate(document: Mapping[str, Any]) -> Certificate:
    stated = dict(document["certificate"])
    if document["version"] < VERSION:
        # What tables happened to cost is claimed no more; the budget is.
        stated = {key: value for key, value in stated.items() if key != "spent_epsilon"} | {"earlier": []}
    return Certificate.from_dict(stated)


def _read_answers(
    array: Arrays, schema: Schema, document: Mapping[str, Any], certificate: Certificate
) -> tuple[Answer, ...]:
    """The noisy answers of the searches, whose tables have the cells that bounds and earlier tables imply."""
    described = document.get("answers", [])
    if len(described) not in (0, len(certificate.domains)):
        raise ModelError("it must hold an answer for each search of its certificate, or none.")
    sizes = [size for entry in described for size in entry["cells"]]
    if sum(sizes) > MAX_SEARCH_CELLS:
        raise ModelError("its searches have more cells than any do.")
    counts = array("search", np.int64, sum(sizes)) if sizes else np.empty(0, dtype=np.int64)
    if max(counts.max(initial=0), -counts.min(initial=0)) > MAX_COUNT:
        raise ModelError("its noisy counts must be at most 2**53 in size.")
    tables = iter(np.split(counts, np.cumsum(sizes)[:-1]) if sizes else [])
    answers: list[Answer] = []
    for finding, entry in zip(certificate.domains, described, strict=False):
        own = tuple(next(tables) for _ in entry["cells"])
        if (entry["texts"] is None) != (finding.threshold is None):
            raise ModelError(f"its search for '{finding.attribute!s:.60}' has an answer of another kind.")
        if entry["texts"] is None and not fits(finding, schema, own):
            raise ModelError(f"its search for '{finding.attribute!s:.60}' has other cells than its bounds imply.")
        answers.append(own if entry["texts"] is None else entry["texts"])
    return tuple(answers)


def _read_copula(array: Arrays, schema: Schema, described: Mapping[str, Any]) -> Copula:
    return _COPULAS[described["kind"]].read(schema, described, array)


def _describe(tables: NoisyTables) -> dict[str, Any]:
    return {
        "total": tables.total,
        "total_scale": tables.plan.total,
        "one_way": bool(tables.plan.one_way.size),
        "pairs": bool(tables.plan.pairs.size),
        "trios": bool(tables.plan.trios.size),
        "parities": tables.plan.parities,
    }


def _read_tables(
    array: Arrays, schema: Schema, document: Mapping[str, Any], certificate: Certificate, stage: int
) -> NoisyTables:
    described, name, cells = document["stages"][stage - 1], f"stage{stage}_", schema.cells
    one_way, two_way = described["one_way"], described["pairs"]
    parities, triples = described.get("parities"), described.get("trios", False)
    if (parities is not None and not (cells.are_bits and one_way and two_way)) or (triples and parities is None):
        raise ModelError("its parities must be of bits, and of all of them.")
    sizes = (cells.n_levels, cells.n_cells) if parities is None else (cells.n_attributes, cells.n_pairs)
    n_trios = cells.n_trios if triples else 0
    pairs = array(name + "pairs", np.int64, sizes[1] if two_way else 0)
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
        trios=array(name + "trio_scales", np.float64, n_trios) if triples else np.empty(0),
        parities=parities,
    )
    if not ((plan.scales >= MIN_SCALE) & (plan.scales <= MAX_SCALE)).all():
        raise ModelError("its noise scales must be such as can be drawn exactly.")
    levels = array(name + "one_way", np.int64, sizes[0] if one_way else 0)
    trios = array(name + "trios", np.int64, n_trios) if triples else np.empty(0, dtype=np.int64)
    if any(max(int(part.max(initial=0)), -int(part.min(initial=0))) > MAX_COUNT for part in (levels, pairs, trios)):
        raise ModelError("its noisy counts must be at most 2**53 in size.")
    return NoisyTables(
        cells=cells,
        mechanism=certificate.mechanism,
        n_rows=document["public_rows"],
        total=described["total"],
        one_way=levels,
        pairs=pairs,
        plan=plan,
        trios=trios,
    )


def _width(archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], size: int) -> np.dtype[Any]:
    """The type of an array: of very many cells, 32 bits where the member has no more."""
    narrow = np.dtype(np.int32)
    few = len(_header(narrow, size)) + size * narrow.itemsize
    if kind != np.int64 or size <= MANY_CELLS or archive.getinfo(f"{name}.npy").file_size != few:
        return kind
    return narrow


def _read_triples(array: Arrays, schema: Schema, document: Mapping[str, Any]) -> NoisyTriples | None:
    """Chosen three-way tables, where the file holds any."""
    if "triples" not in document:
        return None
    tables, cells = document["triples"]["tables"], schema.cells
    triples = Triples(
        cells=cells,
        attributes=array("triples_attributes", np.int64, 3 * tables).reshape(-1, 3),
        coarse=array("triples_coarse", np.int64, cells.n_levels),
    )
    scales = array("triples_scales", np.float64, tables)
    if not ((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all():
        raise ModelError("its noise scales must be such as can be drawn exactly.")
    counts = array("triples", np.int64, triples.n_cells)
    if max(int(counts.max(initial=0)), -int(counts.min(initial=0))) > MAX_COUNT:
        raise ModelError("its noisy counts must be at most 2**53 in size.")
    return NoisyTriples(triples=triples, counts=counts, scales=scales)


def _read_scores(array: Arrays, schema: Schema, document: Mapping[str, Any]) -> NoisyScores | None:
    """Scores of all three-way tables, where the file holds them."""
    if "scores" not in document:
        return None
    number, scale = document["scores"]["tables"], document["scores"]["scale"]
    if number != math.comb(schema.cells.n_attributes, 3):
        raise ModelError("its scores must be those of all tables of three attributes.")
    scores = array("scores", np.int64, number)
    if max(int(scores.max()), -int(scores.min())) > MAX_COUNT:
        raise ModelError("its noisy scores must be at most 2**53 in size.")
    return NoisyScores(scores=scores, scale=float(scale))


def read_array(archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], size: int) -> NDArray[Any]:
    """A one-dimensional array of exactly this type and size; nothing larger is ever read into memory."""
    wanted = ModelError(f"its array '{name}' must hold {size} values of type {kind}.")
    stands = archive.getinfo(f"{name}.npy")
    header = _header(kind, size)
    if stands.file_size > len(header) + size * kind.itemsize:
        raise ModelError(f"its array '{name}' is larger than its schema implies.")
    if stands.file_size < len(header) + size * kind.itemsize:
        raise wanted
    with archive.open(stands) as file:
        # The header byte by byte, so that none can say anything else, and no code path that could ever unpickle.
        if file.read(len(header)) != header:
            raise wanted
        found = room_for(size, kind)
        view = found.view(np.uint8)
        filled = 0
        while filled < len(view):
            some = file.read(min(_AT_ONCE, len(view) - filled))
            if not some:
                raise wanted
            view[filled : filled + len(some)] = np.frombuffer(some, dtype=np.uint8)
            filled += len(some)
        # The end is where the zip's checksum is compared.
        file.read(1)
    return found


def _header(kind: np.dtype[Any], size: int) -> bytes:
    """How NumPy's format 1.0 begins for a flat array of this type and size."""
    buffer = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()
