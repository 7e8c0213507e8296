"""The demonstration: a generated census-like table, released, and what came out beside what went in."""

from __future__ import annotations

from pathlib import Path

from sklar.errors import OutputError
from sklar.generate import generate, schema_toml
from sklar.margins import pool
from sklar.output import write_batches, write_text
from sklar.private.count import Counts, count
from sklar.private.read import open_source
from sklar.progress import Progress, watch
from sklar.release import fit
from sklar.schema import Schema

_SEED = 2020
_ONE_WAY = (("education", 2), ("employed", 1), ("marital_status", 1), ("birth_country", -1))
_TWO_WAY = (("education", 2, "employed", 1), ("sex", 0, "marital_status", 1), ("employed", 0, "occupation", -1))


def run(folder: Path, *, rows: int, epsilon: float, progress: Progress) -> list[str]:
    """Fill the folder with the table, its schema, a release and its model; return what to show."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"the folder '{folder}' cannot be made: {error.strerror}.") from None
    original, described, synthetic, model_file = (
        folder / name for name in ("census.csv", "census.toml", "synthetic.csv", "census.sklar")
    )
    progress.stage("generate", total=rows, unit="rows")
    arrow_schema, batches = generate("census", rows=rows, seed=_SEED)
    write_batches(original, arrow_schema, watch(batches, progress), None)
    write_text(described, schema_toml("census"))

    schema = Schema.load(described)
    model = fit(original, schema, epsilon=epsilon, progress=progress)
    model.save(model_file)
    model.write(synthetic, seed=_SEED, progress=progress)

    # The demonstration's rows are invented, so that their exact counts may be shown; a release never shows them.
    exact, drawn = (_count(path, schema) for path in (original, synthetic))
    noisy = pool(model.measured)
    lines = [
        "",
        *model.summary(),
        "",
        f"{'count':<58}{'true':>8}{'noisy':>8}{'synthetic':>11}",
        "-" * 85,
    ]
    for name, level in _ONE_WAY:
        at = _at(schema, name, level)
        lines.append(_row(schema.dummy_names[at], exact.one_way[at], noisy.one_way[at], drawn.one_way[at]))
    for name, level, other, other_level in _TWO_WAY:
        at, other_at = sorted((_at(schema, name, level), _at(schema, other, other_level)))
        label = f"{schema.dummy_names[at]} and {schema.dummy_names[other_at]}"
        cell = (at, other_at)
        lines.append(_row(label, exact.pairs[cell], noisy.pairs[cell], drawn.pairs[cell]))
    with synthetic.open(encoding="utf-8") as file:
        head = [line.rstrip("\n") for line, _ in zip(file, range(4), strict=False)]
    return [
        *lines,
        "",
        "The first synthetic rows:",
        *(f"  {line if len(line) <= 118 else line[:115] + '...'}" for line in head),
        "",
        f"Files in {folder}:",
        f"  {original.name:<15} the table that went in (generated, {rows:,} rows)",
        f"  {described.name:<15} its schema: what is publicly known of it",
        f"  {synthetic.name:<15} the synthetic table that came out",
        f"  {model_file.name:<15} the model: draw more rows with sklar sample {model_file} --rows N --out FILE",
    ]


def _count(path: Path, schema: Schema) -> Counts:
    return count(open_source(path).batches(schema.names), schema)


def _at(schema: Schema, name: str, level: int) -> int:
    index = schema.names.index(name)
    return int(schema.offsets[index] + level % schema.sizes[index])


def _row(label: str, exact: float, noisy: float, drawn: float) -> str:
    return f"{label:<58.57}{exact:>8,.0f}{noisy:>8,.0f}{drawn:>11,.0f}"
