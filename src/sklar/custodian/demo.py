"""The demonstration: a generated census-like table, released, and what came out beside what went in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sklar.errors import OutputError
from sklar.files.model import Model
from sklar.files.write import write_frames, write_text
from sklar.fitting.margins import pool
from sklar.generate import generate, schema_toml
from sklar.machine.progress import Progress, watch
from sklar.machine.wording import failing, said, stated
from sklar.public.schema import Schema
from sklar.release import fit
from sklar.rows.count import ask_all, count
from sklar.rows.read import open_source

_SEED = 2020
# Levels, and pairs of them in the order of the schema, whose counts are shown.
_COUNTED = [each.split(" and ") for each in stated("sklar.custodian", "said.toml")["shown"]["levels"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """What a demonstration made: the model, some counts beside each other, the first rows, and the files."""

    model: Model
    counts: list[tuple[str, int, int, int]]
    head: list[str]
    folder: Path
    files: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = [dict(zip(("count", "true", "noisy", "synthetic"), row, strict=True)) for row in self.counts]
        files = [str(self.folder / name) for name in self.files]
        return {"certificate": self.model.certificate.to_dict(), "counts": counts, "files": files}

    def lines(self) -> list[str]:
        """As text."""
        heads = f"{'count':<58}{'true':>8}{'noisy':>8}{'synthetic':>11}"
        rows = [f"{label:<58.57}{exact:>8,}{noisy:>8,}{drawn:>11,}" for label, exact, noisy, drawn in self.counts]
        head = [f"  {line if len(line) <= 118 else line[:115] + '...'}" for line in self.head]
        files = [f"  {name:<15} {what}" for name, what in self.files.items()]
        lines = ["", *self.model.summary(), "", heads, "-" * 85, *rows, "", "The first synthetic rows:", *head]
        return [*lines, "", f"Files in {self.folder}:", *files]


def run(folder: Path, *, rows: int, epsilon: float, progress: Progress) -> Demonstration:
    """Fill the folder with the table, its schema, a release and its model; return what to show."""
    with failing(OutputError, f"the folder '{folder}' cannot be made: {{why}}.", OSError):
        folder.mkdir(parents=True, exist_ok=True)
    names = ("census.csv", "census.toml", "synthetic.csv", "census.sklar")
    original, described, synthetic, model_file = (folder / name for name in names)
    progress.stage("generate", total=rows, unit="rows")
    write_text(described, schema_toml("census"))
    schema = Schema.load(described)
    columns, frames = generate("census", rows=rows, seed=_SEED)
    write_frames(original, columns, watch(frames, progress), schema)

    model = fit(original, schema, epsilon=epsilon, progress=progress)
    model.save(model_file)
    model.write(synthetic, seed=_SEED, progress=progress)

    # The demonstration's rows are invented, so that their exact counts may be shown; a release never shows them.
    exact, drawn = (count(open_source(path).batches(schema.names), ask_all(schema)) for path in (original, synthetic))
    counts = []
    for levels in _COUNTED:
        at = [schema.dummy_names.index(level) for level in levels]
        tables = (exact, pool(model.measured), drawn)
        figures = (each.one_way[at[0]] if len(at) == 1 else schema.cells.square(each.pairs)[*at] for each in tables)
        true, noisy, sampled = map(round, figures)
        counts.append((" and ".join(levels), true, noisy, sampled))
    with synthetic.open(encoding="utf-8") as file:
        head = [line.rstrip("\n") for line in islice(file, 4)]
    files = dict(zip(names, said("custodian.files", rows=rows, model=model_file).splitlines(), strict=True))
    return Demonstration(model=model, counts=counts, head=head, folder=folder, files=files)
