"""A fitted release of linked tables: sample people with their events, save, load.

Everything in it is already private in the formal sense. Its file is a zip as that of any model is (`files.archive`),
with the same strictness: no other member, key or byte.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.certificate import rounded_up
from sklar.budget.linked import (
    WORDS,
    LinkedCertificate,
    LinkedMeasured,
    LinkedPlan,
    linked_measurements,
    linked_tables,
)
from sklar.draw.blocks import BLOCK_ROWS, blocks
from sklar.draw.sample import LinkedSampler, check_draw, linked_columns
from sklar.errors import ModelError
from sklar.files.archive import (
    LEVEL,
    LINKED_FORMAT,
    MAX_COUNT,
    member,
    read_array,
    write_arrays,
)
from sklar.files.known import require_known_linked
from sklar.files.write import SUFFIXES, check_target, replacing, write_frames
from sklar.fitting.classes import LinkedClasses
from sklar.kernel.queries import Block
from sklar.kernel.theorems import MAX_SCALE, MIN_SCALE
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import in_order
from sklar.public.description import open_model, written
from sklar.public.events import Linked

LINKED_VERSION = 1
# Classes hold probabilities; their file holds them in single precision.
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LinkedModel:
    """Noisy tables of people and events, the classes fitted to them, and what was decided on the way.

    `n_people` is how many people the tables stand for: public, or estimated from noisy tables.
    """

    measured: LinkedMeasured
    classes: LinkedClasses
    n_people: int
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        return (
            f"LinkedModel('{self.linked.name}', {self.n_people:,} people with at most {self.linked.at_most:,} events; "
            f"epsilon={self.certificate.epsilon:.4g}, delta={self.certificate.delta:.3g})"
        )

    @property
    def linked(self) -> Linked:
        """What is publicly known of both tables."""
        return self.measured.linked

    @property
    def certificate(self) -> LinkedCertificate:
        """What was spent on this model."""
        return self.measured.certificate

    def sample(self, people: int | None = None, *, seed: int | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Draw synthetic people, as many as the original has unless told otherwise, and their events.

        Keys are 1, 2, ...; every event has the key of one of the people, and some people have no events. The same model
        and seed give the same tables. The order of a person's events means nothing.
        """
        drawn = list(self._blocks(people, seed))
        return pl.concat([block[0] for block in drawn]), pl.concat([block[1] for block in drawn])

    def _blocks(self, people: int | None, seed: int | None) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        if people is not None and (type(people) is not int or people < 1):
            raise ModelError(f"people must be a whole number of at least 1, got {people!r}.")
        _, seed = check_draw(None, seed)
        sampler = LinkedSampler(self.classes, seed)
        return in_order(sampler.draw, blocks(self.n_people if people is None else people, BLOCK_ROWS))

    def write(
        self,
        people_path: str | Path,
        events_path: str | Path,
        people: int | None = None,
        *,
        seed: int | None = None,
        progress: Progress = SILENT,
    ) -> None:
        """Sample straight into two CSV, Parquet, Arrow or NDJSON files, a block of people at a time."""
        targets = check_target(people_path, SUFFIXES), check_target(events_path, SUFFIXES)
        if targets[0].resolve() == targets[1].resolve():
            raise ModelError(f"people and events need a file each, got '{people_path}' twice.")
        _, seed = check_draw(None, seed)
        columns = linked_columns(self.linked)
        for table, schema in enumerate((self.linked.people, self.linked.events)):
            # Drawn once for each file: two files cannot be written from one stream without holding it.
            progress.stage("sample")
            frames = (block[table] for block in self._blocks(people, seed))
            write_frames(targets[table], columns[table], frames, schema)

    def summary(self) -> list[str]:
        """What was released and what it cost, in a few lines."""
        stated, linked, settings = self.certificate, self.linked, self.settings
        size = f"{self.n_people:,} people" if stated.public_people is not None else f"about {self.n_people:,} people"
        guarded = "content" if stated.neighbors == "replace-one" else "presence"
        lines = [
            f"Tables '{linked.people.name}' and '{linked.events.name}': {size}, at most {linked.at_most} events each, "
            f"{linked.people.n_attributes} + {linked.events.n_attributes} attributes.",
            f"Privacy spent: epsilon = {rounded_up(stated.epsilon, 4)}, delta = {rounded_up(stated.delta, 3)}, for the "
            f"{guarded} of any one person, with all their events",
            f"  ({stated.neighbors} neighbors, {stated.mechanism} noise, {stated.composition} composition):",
        ]
        for kind in dict.fromkeys(entry.kind for entry in stated.measurements):
            entries = [entry for entry in stated.measurements if entry.kind == kind]
            scales = [f"{entry.scale:.4g}" for entry in entries]
            spread = scales[0] if len(set(scales)) == 1 else f"{scales[0]} to {scales[-1]}"
            tables = sum(entry.tables for entry in entries)
            lines.append(f"  {f'{tables:,} ' if tables > 1 else ''}{WORDS[kind]}, noise of scale {spread} people")
        if not settings["steps"]:
            return [*lines, "Model: independence; the noisy tables show no more."]
        return [
            *lines,
            f"Model: {settings['person_classes']} classes of people ({settings['fits']} fits of {settings['steps']} "
            f"steps), {settings['event_classes']} classes of events in each;",
            f"  {settings['gain_over_independence']:.0%} of independence's error on held-out noise taken away.",
        ]

    def save(self, path: str | Path) -> None:
        """Write the model to a `.sklar` file, whole or not at all."""
        target = check_target(path, (".sklar",))
        with replacing(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member("model.json"), written(describe_linked(self)), compresslevel=LEVEL)
            write_arrays(archive, linked_arrays(self))


def describe_linked(model: LinkedModel) -> dict[str, Any]:
    """What the file says of a model in JSON."""
    return {
        "format": LINKED_FORMAT,
        "version": LINKED_VERSION,
        "schema": model.linked.to_dict(),
        "n_people": model.n_people,
        "settings": dict(model.settings),
        "certificate": model.certificate.to_dict(),
    }


def linked_arrays(model: LinkedModel) -> dict[str, NDArray[Any]]:
    """The arrays that the file holds of a model, flat, in the order of its members."""
    counts = np.concatenate(model.measured.counts)
    return {"counts": counts, "scales": model.measured.plan.scales} | model.classes.arrays()


def load_linked(path: str | Path) -> LinkedModel:
    """Read a model of linked tables from a `.sklar` file."""
    with open_model(path, "model of linked tables") as (archive, document):
        return _read(archive, document)


def _read(archive: zipfile.ZipFile, document: dict[str, Any]) -> LinkedModel:
    if document.get("format") != LINKED_FORMAT:
        raise ModelError("its description is not that of linked tables.")
    require_known_linked(document)
    linked, read = Linked.from_dict(document["schema"]), {"model.json"}

    def array(name: str, kind: type[np.generic], size: int) -> NDArray[Any]:
        read.add(f"{name}.npy")
        return read_array(archive, name, np.dtype(kind), size)

    certificate = LinkedCertificate.from_dict(document["certificate"])
    if certificate.schema_sha256 != linked.digest:
        raise ModelError("its certificate is for another schema.")
    if certificate.read_from_rows != linked.read_from_rows:
        raise ModelError("its certificate and its schema name different attributes as read from the rows.")
    measured = _read_measured(array, linked, certificate)
    if measured.n_people != document["n_people"]:
        raise ModelError("its number of people is not the one that its tables say.")
    model = LinkedModel(
        measured=measured,
        classes=_read_classes(array, linked, document["settings"]),
        n_people=document["n_people"],
        settings=document["settings"],
    )
    unread = sorted(set(archive.namelist()) - read)
    if unread:
        raise ModelError(f"it holds '{unread[0]!s:.60}', which no model does.")
    return model


Arrays = Callable[[str, type[np.generic], int], NDArray[Any]]


def _read_measured(array: Arrays, linked: Linked, certificate: LinkedCertificate) -> LinkedMeasured:
    if (certificate.public_people is None) != (certificate.neighbors == "add-remove"):
        raise ModelError("the number of people is public where neighbors share it, and only there.")
    tables = linked_tables(linked, total=certificate.neighbors == "add-remove")
    plan = LinkedPlan(tables=tables, scales=array("scales", np.float64, len(tables)), tokens=certificate.tokens)
    if not ((plan.scales >= MIN_SCALE) & (plan.scales <= MAX_SCALE)).all():
        raise ModelError("its noise scales must be such as can be drawn exactly.")
    if linked_measurements(plan, certificate.budget.shifts) != certificate.measurements:
        raise ModelError("its certificate states other measurements than its arrays hold.")
    sizes = np.array([table.cells for table in tables])
    counts = array("counts", np.int64, int(sizes.sum()))
    if max(counts.max(initial=0), -counts.min(initial=0)) > MAX_COUNT:
        raise ModelError("its noisy counts must be at most 2**53 in size.")
    ends = np.cumsum([query.n_cells for query, _ in plan.parts])
    parts = zip(plan.parts, np.split(counts, ends[:-1]), strict=True)
    blocks = tuple(Block(query=query, scales=scales, values=values) for (query, scales), values in parts)
    return LinkedMeasured(linked=linked, plan=plan, blocks=blocks, certificate=certificate)


def _read_classes(array: Arrays, linked: Linked, settings: Mapping[str, Any]) -> LinkedClasses:
    classes, kinds = settings["person_classes"], settings["event_classes"]
    shapes = {
        "person": (classes, linked.people.n_levels),
        "number": (classes, linked.at_most + 1),
        "event_class": (classes, kinds),
        "event": (classes, kinds, linked.events.n_levels),
    }
    offsets = {"person": linked.people.offsets, "event": linked.events.offsets}
    found = {}
    for name, shape in shapes.items():
        chances = array(name, np.float32, int(np.prod(shape))).reshape(shape)
        begins = offsets[name][:-1] if name in offsets else np.array([0])
        # In halves of the comparison that a number that is none fails, too.
        if not (chances >= 0).all() or not (abs(np.add.reduceat(chances, begins, axis=-1) - 1) < _ROUNDING).all():
            raise ModelError(f"its array '{name}' must hold probabilities.")
        found[name] = chances
    return LinkedClasses(linked=linked, **found)
