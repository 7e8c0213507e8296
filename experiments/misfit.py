"""How far a fitted model is off in what no two-way table measures: random three-way shares, with all but exact tables.

    python -m experiments.misfit

The error of a one-step estimate is then that of the model in three-way structure. It is shown over the standard
deviation of the share's influence function beyond two-way functions: what `answer.infer.onestep.ALIKE` allows for.
Beside it, how often 95% intervals hold the share with and without that allowance.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from experiments import record
from experiments.asked import Case, Rows, adult_cases, census_cases
from experiments.inference import AsIfReal, Watched, release
from sklar.answer.effects import Floats
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Inquiry
from sklar.answer.infer.onestep import ALIKE
from sklar.public.schema import Attribute, Schema

EPSILON = 50.0
SHARES = 60
# Rarer ones are judged by whole rows.
_LEAST = 0.002
_REACH = 1.96


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


def misfits(case: Case, generator: np.random.Generator) -> Floats:
    """Of each share: the relative misfit, and the errors in standard errors without and with the allowance."""
    rows = case.draw(generator)
    truth = Rows(rows, case.schema.sizes)
    model = release(replace(case, epsilon=EPSILON, draw=lambda _generator: rows), generator)
    found = []
    for _ in range(SHARES):
        asked = Watched(Inquiry(model, random_share(case.schema, generator), target="table"))
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
    for title, case in (("census", census_cases()[0]), ("Adult", adult_cases(folder)[0])):
        found = np.concatenate([misfits(case, generator) for _ in range(times)])
        relative = np.abs(found[:, 0])
        held = np.mean(np.abs(found[:, 1:]) <= _REACH, axis=0)
        squares = float(np.sqrt(np.mean(relative**2)))
        rows.append([title, len(found), f"{squares:.3f}", f"{relative.max():.3f}", *(f"{share:.0%}" for share in held)])
    head = ["table", "shares", "misfit, root mean square", "largest", "covered without the allowance", "with it"]
    click.echo(record.table(head, rows))


if __name__ == "__main__":
    main()
