"""A model as a `.sklar` file: a zip of `model.json` and one `.npy` per array.

It holds only what is already private in the formal sense: the schema, noisy tables, what was fitted to them, and the
certificate. Nothing in it is executed when it is read: arrays are read without pickle, and their names, types and
shapes must be those that the schema implies. Nothing else may be in it: no further member, key or byte of an array, and
no comment. (`trust.verify` also refuses what a zip can hold between its members.)
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import OLD_DISTANCE, Certificate, Measured, priced
from sklar.budget.search import fits
from sklar.budget.views import answers_of, is_of_schema
from sklar.errors import ModelError
from sklar.files.known import MAX_SEARCH_CELLS, require_known
from sklar.files.model import Model
from sklar.files.write import check_target, replacing
from sklar.fitting.latent import LatentModel
from sklar.fitting.protocols import Copula
from sklar.kernel.cells import MANY_CELLS, Cells
from sklar.kernel.queries import MOST_COARSE, Block, Common, Distances, Parities, Query, Tables
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE
from sklar.machine.spill import room_for
from sklar.paper.gaussian import BinaryCopula
from sklar.public.description import open_model, written
from sklar.public.schema import Schema

FORMAT = "sklar-model"
LINKED_FORMAT = "sklar-linked"
VERSION = 4

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
    return {
        "format": FORMAT,
        "version": VERSION,
        "schema": model.schema.to_dict(),
        "n_rows": model.n_rows,
        "public_rows": model.measured.n_rows,
        "blocks": [_describe(block) for block in model.measured.blocks],
        "copula": model.copula.describe(),
        "settings": dict(model.settings),
        "certificate": model.certificate.to_dict(),
    }


def _describe(block: Block) -> dict[str, Any]:
    """What the file says of one block beside its arrays."""
    query = block.query
    if isinstance(query, Common):
        return {"query": "common", "about": query.about, "threshold": query.threshold, "keys": list(block.keys or ())}
    if isinstance(query, Parities):
        return {"query": "parities", "orders": query.orders}
    if isinstance(query, Distances):
        return {"query": "distances"}
    if not isinstance(query, Tables):
        raise ModelError(f"a model of one table holds no {type(query).__name__}.")
    if query.about:
        return {"query": "grid", "about": query.about, "cells": query.n_cells}
    sets = None if query.sets is None else len(query.sets)
    return {"query": "tables", "order": query.order, "sets": sets, "coarse": query.coarse is not None}


def arrays_of(model: Model) -> dict[str, NDArray[Any]]:
    """The arrays that the file holds of a model, flat, in the order of its members."""
    blocks = model.measured.blocks
    arrays: dict[str, NDArray[Any]] = {"scales": np.concatenate([np.empty(0), *(block.scales for block in blocks)])}
    searched = [block.values for block in blocks if not is_of_schema(block)]
    if any(values.size for values in searched):
        arrays["search"] = np.concatenate(searched)
    for number, block in enumerate(blocks):
        query = block.query.of if isinstance(block.query, Distances) else block.query
        if not is_of_schema(block):
            continue
        if isinstance(query, Tables):
            arrays |= {
                f"block{number}_{name}": part.ravel()
                for name, part in (("sets", query.sets), ("coarse", query.coarse))
                if part is not None
            }
        arrays[f"block{number}"] = block.values
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
    blocks = _read_blocks(array, schema, document) if document["version"] > 3 else _read_older(array, schema, document)
    model = Model(
        measured=Measured(schema=schema, blocks=_checked(blocks, certificate, schema), certificate=certificate),
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
    if document["version"] < 3:
        # What tables happened to cost is claimed no more; the budget is.
        stated = {key: value for key, value in stated.items() if key != "spent_epsilon"} | {"earlier": []}
    certificate = Certificate.from_dict(stated)
    return certificate if document["version"] > 3 else priced(certificate)


def _checked(blocks: Sequence[Block], certificate: Certificate, schema: Schema) -> tuple[Block, ...]:
    """The blocks, refused where scales cannot be drawn, counts are nobody's, or searches are not the certificate's."""
    for block in blocks:
        if not ((block.scales >= MIN_SCALE) & (block.scales <= MAX_SCALE)).all():
            raise ModelError("its noise scales must be such as can be drawn exactly.")
        if max(int(block.values.max(initial=0)), -int(block.values.min(initial=0))) > MAX_COUNT:
            raise ModelError("its noisy counts must be at most 2**53 in size.")
    searched = [block for block in blocks if not is_of_schema(block)]
    if list(blocks[: len(searched)]) != searched:
        raise ModelError("its searches must come before its tables.")
    wanted = [finding for finding in certificate.domains for _ in range(finding.tables)]
    if searched and len(searched) != len(wanted):
        raise ModelError("it must hold an answer for each search of its certificate, or none.")
    for block, finding in zip(searched, wanted, strict=False):
        query, name = block.query, finding.attribute
        threshold = query.threshold if isinstance(query, Common) else None
        if getattr(query, "about", "") != name or (threshold is None) != (finding.threshold is None):
            raise ModelError(f"its search for '{name!s:.60}' has an answer of another kind.")
    for finding, answer in zip(
        certificate.domains, answers_of(blocks, [each.tables for each in certificate.domains]), strict=False
    ):
        if isinstance(answer, tuple) and not fits(finding, schema, answer):
            raise ModelError(f"its search for '{finding.attribute!s:.60}' has other cells than its bounds imply.")
    return tuple(blocks)


def _read_blocks(array: Arrays, schema: Schema, document: Mapping[str, Any]) -> list[Block]:
    """Blocks as version 4 holds them: descriptions one by one, all scales in one array, and values."""
    cells, described = schema.cells, document["blocks"]
    lengths = [len(entry["keys"]) if entry["query"] == "common" else entry.get("cells", 0) for entry in described]
    # A piece for every block: a search that found nothing has an empty one.
    answers = array("search", np.int64, sum(lengths)) if any(lengths) else np.empty(0, dtype=np.int64)
    searched = np.split(answers, np.cumsum(lengths)[:-1])

    def tables(number: int, order: int, sets: int | None, *, coarse: bool) -> Tables:
        return Tables(
            cells=cells,
            order=order,
            sets=None if sets is None else array(f"block{number}_sets", np.int64, order * sets).reshape(-1, order),
            coarse=array(f"block{number}_coarse", np.int64, cells.n_levels) if coarse else None,
        )

    parts: list[tuple[Query, tuple[str, ...] | None, NDArray[Any]]] = []
    for number, entry in enumerate(described):
        query: Query
        if entry["query"] in ("common", "grid"):
            if entry["query"] == "common":
                query, keys = Common(about=entry["about"], threshold=entry["threshold"]), tuple(entry["keys"])
            else:
                query, keys = Tables(cells=Cells([entry["cells"]]), order=1, about=entry["about"]), None
            parts.append((query, keys, searched[number]))
            continue
        if entry["query"] == "tables":
            query = tables(number, entry["order"], entry["sets"], coarse=entry["coarse"])
        elif entry["query"] == "parities":
            query = Parities(cells=cells, orders=entry["orders"])
        else:
            query = Distances(of=tables(number, 3, None, coarse=True), reference=None)
        parts.append((query, None, array(f"block{number}", np.int64, query.n_cells)))
    sizes = [query.sizes.size for query, _, _ in parts]
    scales = np.split(array("scales", np.float64, sum(sizes)), np.cumsum(sizes)[:-1])
    return [
        Block(query=query, scales=own, values=values, keys=keys)
        for (query, keys, values), own in zip(parts, scales, strict=True)
    ]


def _read_older(array: Arrays, schema: Schema, document: Mapping[str, Any]) -> list[Block]:
    """Blocks from a file of version 1 to 3, which held tables stage by stage."""
    cells, blocks = schema.cells, _read_answers(array, document)
    for stage, described in enumerate(document["stages"], start=1):
        name = f"stage{stage}_"
        if described["total_scale"] is not None:
            values, scales = np.array([described["total"] or 0], dtype=np.int64), np.array([described["total_scale"]])
            blocks.append(Block(query=Tables(cells=cells, order=0), scales=scales, values=values))
        one_way, two_way, three_way = described["one_way"], described["pairs"], described.get("trios", False)
        parities = described.get("parities") is not None
        if (parities and not (cells.are_bits and one_way and two_way)) or (three_way and not parities):
            raise ModelError("its parities must be of bits, and of all of them.")
        names = (("one_way", "one_way_scales"), ("pairs", "pair_scales"), ("trios", "trio_scales"))
        orders = [order for order, there in enumerate((one_way, two_way, three_way), start=1) if there]
        read = {}
        for order in (1, 2, *orders[2:]):
            tables, there = Tables(cells=cells, order=order), order in orders
            number = tables.sizes.size if there else 0
            values = array(name + names[order - 1][0], np.int64, number if parities else tables.n_cells * there)
            read[order] = (values, array(name + names[order - 1][1], np.float64, number))
        if two_way and document["version"] == 1:
            # Version 1 laid the same cells out row by row of all levels.
            block = cells.attribute_of_level
            square = np.zeros((cells.n_levels, cells.n_levels), dtype=np.int64)
            square[block[:, None] < block[None, :]] = read[2][0]
            read[2] = (cells.flat(square), read[2][1])
        if parities:
            if any((read[order][1] != read[order][1][0]).any() for order in orders):
                raise ModelError("its parities of one order must have one scale.")
            query = Parities(cells=cells, orders=len(orders))
            scales = np.array([read[order][1][0] for order in orders])
            blocks.append(
                Block(query=query, scales=scales, values=np.concatenate([read[order][0] for order in orders]))
            )
        else:
            blocks += [
                Block(query=Tables(cells=cells, order=order), scales=read[order][1], values=read[order][0])
                for order in orders
            ]
    coarse = np.minimum(np.arange(cells.n_levels) - cells.offsets[cells.attribute_of_level], MOST_COARSE - 1)
    chosen: list[Block] = []
    if "triples" in document:
        number = document["triples"]["tables"]
        sets, coarse = (
            array("triples_attributes", np.int64, 3 * number),
            array("triples_coarse", np.int64, cells.n_levels),
        )
        tables = Tables(cells=cells, order=3, sets=sets.reshape(-1, 3), coarse=coarse)
        scales = array("triples_scales", np.float64, number)
        chosen.append(Block(query=tables, scales=scales, values=array("triples", np.int64, tables.n_cells)))
    if "scores" in document:
        distances = Distances(of=Tables(cells=cells, order=3, coarse=coarse), reference=None)
        if document["scores"]["tables"] != distances.n_cells:
            raise ModelError("its scores must be those of all tables of three attributes.")
        scales = np.array([document["scores"]["scale"] * OLD_DISTANCE])
        chosen.append(Block(query=distances, scales=scales, values=array("scores", np.int64, distances.n_cells)))
    return blocks + chosen


def _read_answers(array: Arrays, document: Mapping[str, Any]) -> list[Block]:
    """The noisy answers of the searches of version 3."""
    described, findings = document.get("answers", []), document["certificate"]["domains"]
    if len(described) not in (0, len(findings)):
        raise ModelError("it must hold an answer for each search of its certificate, or none.")
    sizes = [size for entry in described for size in entry["cells"]]
    if sum(sizes) > MAX_SEARCH_CELLS:
        raise ModelError("its searches have more cells than any do.")
    counts = iter(np.split(array("search", np.int64, sum(sizes)), np.cumsum(sizes)[:-1]) if sizes else [])
    blocks = []
    for finding, entry in zip(findings, described, strict=False):
        about, scales = finding["attribute"], np.array([float(finding["scale"])])
        if entry["texts"] is not None:
            # Sorted, as the vault names them.
            texts = dict(sorted(entry["texts"].items()))
            values, query = (
                np.array(list(texts.values()), dtype=np.int64),
                Common(about=about, threshold=finding["threshold"] or 0),
            )
            blocks.append(Block(query=query, scales=scales, values=values, keys=tuple(texts)))
        for size in entry["cells"]:
            grid = Tables(cells=Cells([size]), order=1, about=about)
            blocks.append(Block(query=grid, scales=scales, values=next(counts)))
    return blocks


def _read_copula(array: Arrays, schema: Schema, described: Mapping[str, Any]) -> Copula:
    return _COPULAS[described["kind"]].read(schema, described, array)


def _width(archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], size: int) -> np.dtype[Any]:
    """The type of an array: of very many cells, 32 bits where the member has no more."""
    narrow = np.dtype(np.int32)
    few = len(_header(narrow, size)) + size * narrow.itemsize
    if kind != np.int64 or size <= MANY_CELLS or archive.getinfo(f"{name}.npy").file_size != few:
        return kind
    return narrow


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
