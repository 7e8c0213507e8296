"""`sklar infer`: means, shares, correlations, regressions and tests with honest errors, from a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sklar.cli.console import JSON, print_figures
from sklar.cli.options import MODEL, flag, number

if TYPE_CHECKING:
    from sklar.answer.infer import Declared


@click.command(short_help="Means, regressions and tests with honest errors, from a model.")
@MODEL
@click.argument("question")
@click.option("--level", type=number, default="0.95", show_default=True, help="Coverage of the confidence intervals.")
@click.option(
    "--target",
    type=click.Choice(["population", "table"]),
    help="What intervals are about: the population that the rows were drawn from, or the confidential table itself.  "
    "[default: population; table where several rows of each person are counted]",
)
@flag("--midpoints", "Score bins by their midpoints. Without it, by the mean of the fitted shape inside them.")
@JSON
def infer(*, model_path: Path, question: str, level: float, target: str | None, midpoints: bool) -> None:
    """Answer QUESTION about the table behind a MODEL file, with errors that account for its noise. No privacy cost.

    Tests on synthetic rows take noise for effects. These answers are made from the noisy tables, whose noise is known:
    estimate, standard error, interval, how much of the statistic was measured, and when not to rely on it.

    \b
      sklar infer adult.sklar "mean(age) by sex"
      sklar infer adult.sklar "difference of share(income = '>50K') by sex" --target table
      sklar infer adult.sklar "independent(sex, education)" --json

    \b
    Questions:
      mean(hours)   mean(hours) by sex   mean(hours) by sex where age >= 25
      share(income = '>50K') by sex      share(education)
      difference of mean(hours) by sex   difference of share(income = '>50K') by sex
      corr(age, hours)                   independent(sex, region)
      hours ~ age + sex + education      a linear regression
      income ~ age + sex                 a logistic one, where the outcome has two values
      region = 'North' ~ age + sex       or is a predicate
    Names, values and predicates are written as for sklar query.
    """
    from sklar.files.archive import load

    model = load(model_path)
    binned = (each.name for each in model.schema.attributes if each.edges)
    scores: dict[str, Declared] | None = dict.fromkeys(binned, "midpoint") if midpoints else None
    print_figures(model.infer(question, level=level, target=target, scores=scores))
