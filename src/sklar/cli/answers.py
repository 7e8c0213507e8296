"""`sklar forecast` and `plan`, from public knowledge before any budget is spent; `query` and `infer`, from a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.cli import options as shared
from sklar.cli.console import JSON, print_answer, print_figures
from sklar.cli.options import MODEL, SCHEMA, command, flag, known_at, number, option, written

if TYPE_CHECKING:
    from sklar.answer.infer import Declared


@command(
    "What errors to expect, before spending.",
    JSON,
    written("--plot", "OUT.png|.svg", "Draw the error against epsilon.", to="plot_path"),
)
@shared.together(SCHEMA, shared.N_ROWS)
@option("--epsilon", "A budget; may be given several times.", number, to="epsilons", required=True, multiple=True)
@shared.FORESEEN
def forecast(*, schema_path: Path, epsilons: tuple[float, ...], plot_path: Path | None, **how: Any) -> None:
    """Say what errors to expect from a release, before any budget is spent.

    \b
      sklar forecast --schema adult.toml --rows 32561 --epsilon 0.5 --epsilon 1 --epsilon 2
    """
    from sklar.budget.forecast import forecast as foresee
    from sklar.budget.forecast import plot_forecasts, table_lines

    if plot_path is not None:
        from sklar.files.write import check_target, replacing

        check_target(plot_path, (".png", ".svg"))
    known = known_at(schema_path)
    forecasts = [foresee(known, epsilon=epsilon, **how) for epsilon in epsilons]
    if plot_path is not None:
        with replacing(plot_path) as temporary:
            plot_forecasts(forecasts, temporary, kind=plot_path.suffix.lower()[1:])
    after = [] if plot_path is None else [f"The plot is in {plot_path}."]
    print_answer([each.to_dict() for each in forecasts], table_lines(forecasts), *after)


@command("The smallest epsilon for your questions.", JSON)
@shared.together(SCHEMA, shared.N_ROWS)
@option(
    "--want",
    'A question and its margin, such as "region = \'North\' within 2%" or "age x income within 5% of rows"; may '
    "be given several times.",
    multiple=True,
    metavar="QUESTION",
)
@option("--epsilon", "Say what this budget answers.  [default: the smallest that answers every question]", number)
@shared.FORESEEN
@shared.ledger_options("Say what the release would leave of this ledger. Nothing is charged.")
def plan(*, schema_path: Path, dataset: str | None, **options: Any) -> None:
    """Say which epsilon your questions need, before any budget is spent; or, with --epsilon, which it answers.

    A margin is a share of the rows, or a number of rows, and holds with 95% confidence for each question; for a table
    (age x income), for all its cells together. Exit code 1 where --epsilon does not answer every question.

    \b
      sklar plan --schema adult.toml --rows 32561 --want "sex = 'Female' within 1%"
      sklar plan --schema adult.toml --rows 32561 --epsilon 1 --want "age x income within 2% of rows"
    """
    from sklar.answer.wants import plan as foresee
    from sklar.errors import BudgetError

    book = shared.open_ledger(options.pop("ledger"), options.pop("ledger_key"))
    if book is None and dataset is not None:
        raise BudgetError("a data set was given, and no ledger. Give both.")
    foreseen = foresee(known_at(schema_path), ledger=book, dataset=dataset, **options)
    print_figures(foreseen, code=int(not foreseen.answered))


@command("Counts with error bars, from a model.", JSON)
@MODEL
@click.argument("predicate")
@option("--level", "Coverage of the confidence interval.", number, default="0.95")
@flag("--exact", "Refuse a predicate that cuts a bin, instead of using the model's share.")
def query(*, model_path: Path, predicate: str, **how: Any) -> None:
    """Count the rows that satisfy PREDICATE, with error bars, from a MODEL file. This costs no privacy.

    Predicates over one or two attributes were measured: they get an estimate, its standard error and a confidence
    interval. Those over more get what sklar infer says of the share of rows: an interval where nearly all of it was
    measured, else bounds. Where a predicate cuts a bin, the model's share of the bin is used, and the error includes
    that it was not measured.

    \b
      sklar query adult.sklar "income = '>50K' and sex = 'Female'"
      sklar query adult.sklar "30 <= age < 40 and not workclass is missing"
      sklar query adult.sklar "education in ('Masters', 'Doctorate') or education-num >= 14"

    \b
    Names stand bare or in double quotes, values in single quotes. Comparisons: =, !=, <, <=, >, >=,
    in (...), is missing. Joined by and, or, not and parentheses.
    """
    from sklar.files.model import model_of

    print_figures(model_of(model_path).query(predicate, **how))


@command("Means, regressions and tests with honest errors, from a model.", JSON)
@MODEL
@click.argument("question")
@option("--level", "Coverage of the confidence intervals.", number, default="0.95")
@shared.choice(
    "--target",
    "population table",
    "What intervals are about: the population that the rows were drawn from, or the confidential table itself.  "
    "[default: population; table where several rows of each person are counted]",
)
@flag("--midpoints", "Score bins by their midpoints. Without it, by the mean of the fitted shape inside them.")
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
      median(hours) by sex               quantile(hours, 0.9)
      sd(hours)   sum(hours)             mean(gain) / mean(hours)
      ratio of odds(income = '>50K') by sex
      corr(age, log(hours))              independent(sex, region)
      hours ~ age * sex + education      a linear regression; x:z are products, C(x) are categories
      income ~ age + age^2 + sex         a logistic one, where the outcome has two values
      region = 'North' ~ age + sex       or is a predicate
      poisson(children ~ age + sex)      a Poisson one; also ols(...), logit(...)
      ratio of income ~ age + sex        its odds ratios
    After any of them: weighted by NAME, where PREDICATE.
    Names, values and predicates are written as for sklar query.
    """
    from sklar.files.model import model_of

    model = model_of(model_path)
    binned = (each.name for each in model.schema.attributes if each.edges)
    scores: dict[str, Declared] | None = dict.fromkeys(binned, "midpoint") if midpoints else None
    print_figures(model.infer(question, level=level, target=target, scores=scores))
