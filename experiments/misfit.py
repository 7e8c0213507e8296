"""How far a fitted model is off in what no two-way table measures: random three-way shares, with all but exact tables.

    python -m experiments.misfit

The error of a one-step estimate is then that of the model in three-way structure. It is shown over the standard
deviation of the share's influence function beyond two-way functions: what `answer.infer.onestep.ALIKE` allows for.
Beside it, how often 95% intervals hold the share with and without that allowance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from experiments import data, record
from experiments.asked import Codes, Rows, codes_of, counts_of, measure_counts, part_of
from experiments.inference import AsIfReal
from sklar.answer.effects import Floats
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Inquiry, RecordFunction
from sklar.answer.infer.onestep import ALIKE, OneStep
from sklar.files.model import fit_tables
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema

EPSILON = 50.0
SHARES, ROWS = 60, 20_000
CENSUS = ("region", "age", "sex", "marital_status", "children", "education", "employed", "income")
ADULT = ("age", "workclass", "education-num", "marital-status", "race", "sex", "hours-per-week", "income")
# Rarer ones are judged by whole rows.
_LEAST = 0.002
_REACH = 1.96


class Watched(Inquiry):
    """The question as it is asked, remembering the estimates that its answer is made of."""

    found: OneStep

    def one_step(self, values: Floats, influence: RecordFunction, scale: Floats | None = None) -> OneStep:
        """The estimates, which are remembered."""
        self.found = super().one_step(values, influence, scale)
        return self.found


def random_share(schema: Schema, generator: np.random.Generator) -> str:
    """The question for a random three-way share."""

    def event(attribute: Attribute) -> str:
        name = '"' + attribute.name.replace('"', '""') + '"'
        if attribute.binned:
            return f"{name} >= {attribute.axis.text(attribute.edges[generator.integers(1, len(attribute.edges) - 1)])}"
        level = attribute.levels[generator.integers(attribute.n_values)].replace("'", "''")
        return f"{name} = '{level}'"

    chosen = sorted(generator.choice(schema.n_attributes, 3, replace=False))
    return f"share({' and '.join(event(schema.attributes[i]) for i in chosen)})"


def tables(folder: Path | None) -> Iterator[tuple[str, Schema, Codes]]:
    """The generated census and Adult: eight attributes of each, as codes."""
    with data.generated("census", ROWS) as dataset:
        schema = part_of(dataset.schema, CENSUS)
        yield "census", schema, codes_of(dataset.path, schema)
    adult = data.from_folder("adult", folder)
    schema = part_of(adult.schema, ADULT)
    yield "Adult", schema, codes_of(adult.path, schema)


def misfits(rows: Codes, schema: Schema, generator: np.random.Generator) -> Floats:
    """Of each share: the relative misfit, and the errors in standard errors without and with the allowance."""
    truth = Rows(rows, schema.sizes)
    model = fit_tables(measure_counts(counts_of(rows, schema), schema, Budget(epsilon=EPSILON)))
    found = []
    for _ in range(SHARES):
        asked = Watched(model, random_share(schema, generator), target="table")
        figure = answer_to(asked).figures[0]
        true = answer_to(AsIfReal(asked, truth)).figures[0].estimate
        beyond = float(asked.found.beyond[0, 0])
        if true >= _LEAST and beyond > 0:
            error = figure.estimate - true
            without = np.sqrt(max(figure.standard_error**2 - ALIKE**2 * beyond, 1e-300))
            found.append((error / np.sqrt(beyond), error / without, error / figure.standard_error))
    return np.array(found)


@click.command()
@click.option("--data", "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Adult's folder.")
@click.option("--times", default=3, show_default=True, help="Releases of each table.")
def main(folder: Path | None, times: int) -> None:
    """Print how far models are off in three-way structure, as Markdown."""
    generator = np.random.default_rng(1)
    rows = []
    for title, schema, codes in tables(folder):
        found = np.concatenate([misfits(codes, schema, generator) for _ in range(times)])
        relative = np.abs(found[:, 0])
        held = np.mean(np.abs(found[:, 1:]) <= _REACH, axis=0)
        squares = float(np.sqrt(np.mean(relative**2)))
        rows.append([title, len(found), f"{squares:.3f}", f"{relative.max():.3f}", *(f"{share:.0%}" for share in held)])
    head = ["table", "shares", "misfit, root mean square", "largest", "covered without the allowance", "with it"]
    click.echo(record.table(head, rows))


if __name__ == "__main__":
    main()
