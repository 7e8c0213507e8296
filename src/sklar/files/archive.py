"""A model as a `.sklar` file: a zip of `model.json` and one `.npy` per array.

It holds only what is already private in the formal sense: the schema, noisy tables, what was fitted to them, and the
certificate. Nothing in it is executed when it is read: arrays are read without pickle, and their names, types and
shapes must be those that the schema implies. Nothing else may be in it: no further member, key or byte of an array, and
no comment. (`trust.verify` also refuses what a zip can hold between its members.)
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Certificate, Measured, is_of_schema, vouched
from sklar.budget.method import Method
from sklar.budget.plan import INSIDE, beside_of
from sklar.budget.search import fits
from sklar.draw.blocks import Copula, ReadArray
from sklar.errors import ModelError, SklarError
from sklar.files.grammar import FORMAT, VERSION, require_known
from sklar.files.model import Model, TreeModel, Unfitted
from sklar.files.write import check_target, replacing
from sklar.fitting.density import searched
from sklar.fitting.latent import LatentModel
from sklar.fitting.order import arrays_in, laws_in
from sklar.kernel.cells import MANY_CELLS, Cells
from sklar.kernel.queries import Block, Common, Distances, Parities, Query, Shares, Tables
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE, Budget
from sklar.machine.progress import SILENT, Progress
from sklar.machine.spill import room_for
from sklar.machine.wording import said
from sklar.paper.gaussian import BinaryCopula
from sklar.public.description import describes_tree, open_model, written
from sklar.public.schema import Schema
from sklar.public.tree import Known, Tree, joint_of

# Noise hardly compresses: the highest level takes six times as long as the lowest for one part in twenty.
_LEVEL = 1
# Counts beyond this are not whole numbers in double precision, nor anybody's counts.
_MAX_COUNT = 2**53
_AT_ONCE = 1 << 20
_EARLIEST = (1980, 1, 1, 0, 0, 0)
# What a description says, in this order.
_ORDER = ("schema", "n_rows", "public_rows", "blocks", "method", "settings", "certificate", "copula")
_COPULAS: dict[str, type[Copula]] = {kind.kind: kind for kind in (BinaryCopula, LatentModel)}


def save(model: Model | Unfitted, path: str | Path) -> None:
    """Write a model to a `.sklar` file, whole or not at all: what was written is read before it takes its name.

    What is not fitted yet holds noisy values alone, and is its owner's alone (0600).
    """
    target, unfitted = check_target(path, (".sklar",)), isinstance(model, Unfitted)
    with replacing(target, private=unfitted) as temporary:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member("model.json"), written(describe(model)), compresslevel=_LEVEL)
            for name, array in arrays_of(model).items():
                info = member(f"{name}.npy")
                # What `writestr` sets; `open` takes no level, and asks how long the member will be.
                info._compresslevel = _LEVEL  # type: ignore[attr-defined]
                info.file_size = len(_header(array.dtype, array.size)) + array.nbytes
                with archive.open(info, "w") as file:
                    # Piece by piece: as one text a large array would be in memory twice.
                    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
        (load_unfitted if unfitted else load)(temporary)


def describe(model: Model | Unfitted) -> dict[str, Any]:
    """What the file says of a model in JSON."""
    measured = model.measured
    said: dict[str, Any] = {"schema": measured.known.to_dict(), "certificate": measured.certificate.to_dict()}
    said |= {"blocks": [_describe(block) for block in measured.blocks], "public_rows": measured.n_rows}
    if isinstance(model, Unfitted):
        said["method"] = asdict(model.method)
    else:
        said |= {"settings": dict(model.settings), "n_rows": model.n_rows, "copula": model.copula.describe()}
    return {"format": FORMAT, "version": VERSION} | {key: said[key] for key in _ORDER if key in said}


def _describe(block: Block) -> dict[str, Any]:
    """What the file says of one block beside its arrays."""
    query = block.query
    if isinstance(query, Shares):
        return {"query": INSIDE} if query.what == INSIDE else {"query": "side", "what": query.what}
    if isinstance(query, Common):
        return {"query": "common", "about": query.about, "threshold": query.threshold, "keys": list(block.keys or ())}
    if isinstance(query, Parities):
        return {"query": "parities", "orders": query.orders}
    if isinstance(query, Distances):
        of, said = query.of, {"query": "distances"}
        return (
            said | ({} if of.order == 3 else {"order": of.order}) | ({} if of.sets is None else {"sets": len(of.sets)})
        )
    if query.about:
        return {"query": "grid", "about": query.about, "cells": query.n_cells}
    sets = None if query.sets is None else len(query.sets)
    return {"query": "tables", "order": query.order, "sets": sets, "coarse": query.coarse is not None}


def arrays_of(model: Model | Unfitted) -> dict[str, NDArray[Any]]:
    """The arrays that the file holds of a model, flat, in the order of its members."""
    blocks = model.measured.blocks
    arrays: dict[str, NDArray[Any]] = {"scales": np.concatenate([np.empty(0), *(block.scales for block in blocks)])}
    searched = [block.values for block in blocks if not is_of_schema(block)]
    if any(values.size for values in searched):
        arrays["search"] = np.concatenate(searched)
    for number, block in enumerate(blocks):
        if not is_of_schema(block):
            continue
        query = block.query.of if isinstance(block.query, Distances) else block.query
        for name in ("sets", "coarse"):
            part = getattr(query, name, None)
            if part is not None:
                arrays[f"block{number}_{name}"] = part.ravel()
        arrays[f"block{number}"] = block.values
    if isinstance(model, Unfitted):
        return arrays
    return arrays | model.copula.arrays() | (arrays_in(model.laws) if isinstance(model, TreeModel) else {})


def member(name: str) -> zipfile.ZipInfo:
    """How a member of this name stands in the zip."""
    # A fixed time, so that equal models are equal files.
    info = zipfile.ZipInfo(name, date_time=_EARLIEST)
    # A latent model's probabilities shrink by less than a tenth, and take most of the time.
    info.compress_type = zipfile.ZIP_STORED if name == "probabilities.npy" else zipfile.ZIP_DEFLATED
    return info


@contextmanager
def _opened(path: str | Path, *, fitted: bool = True) -> Iterator[tuple[ReadArray, dict[str, Any]]]:
    """Reads arrays by their name, type and size, and the description; in the end all members must have been read."""
    with open_model(path) as (archive, document):
        if document.get("format") != FORMAT:
            raise ModelError("its description is not a Sklar model's. Use the Sklar that wrote it.")
        require_known(document)
        if fitted == ("method" in document):
            # No file is both.
            needed = "what was measured and no model. Fit one: sklar fit --resume" if fitted else "a model already"
            raise ModelError(f"it holds {needed}.")
        read = {"model.json"}

        def array(name: str, kind: type[np.generic], size: int) -> NDArray[Any]:
            read.add(f"{name}.npy")
            return _read_array(archive, name, np.dtype(kind), size)

        yield array, document
        if unread := sorted(set(archive.namelist()) - read):
            raise ModelError(f"unexpected member '{unread[0]!s:.60}'.")


def load(path: str | Path) -> Model:
    """Read a model, of one table or of linked ones, from a `.sklar` file."""
    with _opened(path) as (array, document):
        measured, described = _read_measured(array, document), document["copula"]
        copula = _COPULAS[described["kind"]].read(measured.schema, described, array)
        own: dict[str, Any] = {"measured": measured, "copula": copula}
        own |= {key: document[key] for key in ("n_rows", "settings")}
        if measured.tree is None:
            model = Model(**own)
        else:
            if not isinstance(copula, LatentModel) or copula.ties != measured.tree.ties:
                raise ModelError("its copula is not of its linked tables.")
            classes = copula.n_components // copula.kinds
            model = TreeModel(**own, laws=laws_in(measured.tree, classes, array))
        if odd := [name for name in document["settings"].get("priors", {}) if name not in measured.schema.names]:
            raise ModelError(f"its settings speak of '{odd[0]!s:.60}', which is no attribute.")
        # Uses every setting once, so that a bad file fails at load.
        model.summary()
        return model


def load_unfitted(path: str | Path) -> Unfitted:
    """Read what a release has measured before a model was fitted to it."""
    with _opened(path, fitted=False) as (array, document):
        return Unfitted(measured=_read_measured(array, document), method=Method(**document["method"]))


def resume(path: str | Path, *, progress: Progress = SILENT) -> Model:
    """Fit a model to what a release measured and kept (`keep`) before it was interrupted. Costs no privacy."""
    return load_unfitted(path).fit(progress=progress)


def wrote(path: Path, known: Known, budget: Budget, method: Method) -> bool:
    """Whether a model file is of this schema, but for the domains that its release found, by this budget and method."""
    with suppress(SklarError):
        model = load(path)
        own = model.measured.known
        if isinstance(own, Tree) and isinstance(known, Tree) and own.places == known.places:
            known = known.found(own.joint)
        found: list[Any] = [of.to_dict() for of in (own, known)]
        for finding in model.certificate.domains if isinstance(known, Schema) else ():
            for document in found:
                document["attributes"][finding.attribute] = None
        return found[0] == found[1] and (model.certificate.budget, model.method) == (budget, method)
    return False


def _read_measured(array: ReadArray, document: Mapping[str, Any]) -> Measured:
    """What was measured."""
    known: Known = (Tree if describes_tree(document["schema"]) else Schema).from_dict(document["schema"])
    whole, tree = joint_of(known), known if isinstance(known, Tree) else None
    whole.require_found()
    schema = whole.measured
    certificate = Certificate.from_dict(document["certificate"])
    if certificate.schema_sha256 != known.digest:
        raise ModelError("its certificate is for another schema.")
    named = vouched(whole)
    if {key: getattr(certificate, key) for key in named} != named:
        raise ModelError("its certificate and its schema name different attributes as read from the rows or unread.")
    if (certificate.tokens is None) != (tree is None):
        raise ModelError("its certificate must state tokens of people where it is of linked tables, and only there.")
    beside = {each.what: each.query for each in beside_of(known)}
    blocks = _read_blocks(array, document["blocks"], partial(_query, array, schema, beside, certificate.tokens or 1))
    _check(blocks)
    _check_searches(blocks, certificate, schema)
    return Measured(schema=schema, blocks=tuple(blocks), certificate=certificate, tree=tree)


def _check(blocks: Sequence[Block]) -> None:
    """Refuse scales that cannot be drawn, and counts that are nobody's."""
    for block in blocks:
        if not ((block.scales >= MIN_SCALE) & (block.scales <= MAX_SCALE)).all():
            raise ModelError("its noise scales must be such as can be drawn exactly.")
        if max(int(block.values.max(initial=0)), -int(block.values.min(initial=0))) > _MAX_COUNT:
            raise ModelError("its noisy counts must be at most 2**53 in size.")


def _check_searches(blocks: Sequence[Block], certificate: Certificate, schema: Schema) -> None:
    """Refuse searches that are not the certificate's, or that have other cells than their bounds imply."""
    answers = [block for block in blocks if not is_of_schema(block)]
    if list(blocks[: len(answers)]) != answers:
        raise ModelError("its searches must come before its tables.")
    if len(answers) != sum(finding.tables for finding in certificate.domains):
        raise ModelError("it must hold an answer for each search of its certificate. Use the Sklar that wrote it.")
    for finding, own in searched(certificate.domains, answers):
        name, common = finding.attribute, finding.threshold is not None
        if common != bool(finding.round):
            raise ModelError(said("files.round", name=str(name)))
        for block in own:
            if getattr(block.query, "about", "") != name or isinstance(block.query, Common) != common:
                raise ModelError(f"its search for '{name!s:.60}' has an answer of another kind.")
        if not common and not fits(finding, schema, [np.asarray(block.values) for block in own]):
            raise ModelError(f"its search for '{name!s:.60}' has other cells than its bounds imply.")


def _read_blocks(
    array: ReadArray, described: Sequence[Mapping[str, Any]], query_of: Callable[[int, Mapping[str, Any]], Query]
) -> list[Block]:
    """Blocks: descriptions one by one, all scales in one array, and values."""
    lengths = [len(entry["keys"]) if "keys" in entry else entry.get("cells", 0) for entry in described]
    searched = _read_parts(array, "search", np.int64, lengths)
    queries = [query_of(number, entry) for number, entry in enumerate(described)]
    scales = _read_parts(array, "scales", np.float64, [query.sizes.size for query in queries])
    return [
        Block(
            query=query,
            scales=scales[number],
            values=searched[number] if "about" in entry else array(f"block{number}", np.int64, query.n_cells),
            keys=tuple(entry["keys"]) if "keys" in entry else None,
        )
        for number, (entry, query) in enumerate(zip(described, queries, strict=True))
    ]


def _query(
    array: ReadArray, schema: Schema, beside: Mapping[str, Shares], each: int, number: int, entry: Mapping[str, Any]
) -> Query:
    """The query that an entry of the description and the arrays of its block state, in tokens of people or rows."""
    kind, cells = entry["query"], schema.cells
    if kind == "common":
        return Common(about=entry["about"], threshold=entry["threshold"])
    if kind in (INSIDE, "side"):
        if (query := beside.get(entry.get("what", INSIDE))) is None:
            raise ModelError("it holds tables that its schema does not have.")
        return query if query.per == "row" else replace(query, each=each)
    if kind == "grid":
        return Tables(cells=Cells([entry["cells"]]), order=1, about=entry["about"])
    if kind == "parities":
        return Parities(cells=cells, orders=entry["orders"])
    order, sets = entry.get("order", 3), entry.get("sets")
    tables = Tables(
        cells=cells,
        order=order,
        sets=None if sets is None else array(f"block{number}_sets", np.int64, order * sets).reshape(-1, order),
        coarse=array(f"block{number}_coarse", np.int64, cells.n_levels) if entry.get("coarse", True) else None,
        each=each,
    )
    return tables if kind == "tables" else Distances(of=tables, reference=None)


def _read_parts(array: ReadArray, name: str, kind: type[np.generic], sizes: Sequence[int]) -> list[NDArray[Any]]:
    """One array of these parts, one after the other: a search that found nothing has an empty one."""
    whole = array(name, kind, sum(sizes)) if sum(sizes) else np.empty(0, dtype=kind)
    return np.split(whole, np.cumsum(sizes)[:-1])


def _read_array(archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], size: int) -> NDArray[Any]:
    """A flat array of exactly this type and size (very many whole numbers may have 32 bits); nothing larger is read."""
    info, narrow = archive.getinfo(f"{name}.npy"), np.dtype(np.int32)
    if kind == np.int64 and size > MANY_CELLS and info.file_size == len(_header(narrow, size)) + size * narrow.itemsize:
        kind = narrow
    header, wrong = _header(kind, size), ModelError(f"its array '{name}' must hold {size} values of type {kind}.")
    if info.file_size > len(header) + size * kind.itemsize:
        raise ModelError(f"its array '{name}' is larger than its schema implies.")
    if info.file_size < len(header) + size * kind.itemsize:
        raise wrong
    with archive.open(info) as file:
        # The header byte by byte, so that none can say anything else, and no code path that could ever unpickle.
        if file.read(len(header)) != header:
            raise wrong
        array: NDArray[Any] = room_for(size, kind)
        view = array.view(np.uint8)
        for start in range(0, view.size, _AT_ONCE):
            part = np.frombuffer(file.read(_AT_ONCE), dtype=np.uint8)
            if part.size != min(_AT_ONCE, view.size - start):
                raise wrong
            view[start : start + part.size] = part
        # The end is where the zip's checksum is compared.
        file.read(1)
    return array


def _header(kind: np.dtype[Any], size: int) -> bytes:
    """How NumPy's format 1.0 begins for a flat array of this type and size."""
    buffer = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()
