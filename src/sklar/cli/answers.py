"""`sklar forecast` and `plan`, from public knowledge before any budget is spent; `query` and `infer`, from a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.cli import options as shared
from sklar.cli.console import JSON, print_answer, print_figures
from sklar.cli.options import HELP, MODEL, SCHEMA, command, flag, number, option, written

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
    """Say what errors to expect from a release, before any budget is spent."""
    from sklar.budget.forecast import forecast as foresee
    from sklar.budget.forecast import plot_forecasts, table_lines
    from sklar.public.tree import known_of

    if plot_path is not None:
        from sklar.files.write import check_target, replacing

        check_target(plot_path, (".png", ".svg"))
    known = known_of(schema_path)
    forecasts = [foresee(known, epsilon=epsilon, **how) for epsilon in epsilons]
    if plot_path is not None:
        with replacing(plot_path) as temporary:
            plot_forecasts(forecasts, temporary, kind=plot_path.suffix.lower()[1:])
    after = [] if plot_path is None else [f"The plot is in {plot_path}."]
    print_answer([each.to_dict() for each in forecasts], table_lines(forecasts), *after)


@command("The smallest epsilon for your questions.", JSON)
@shared.together(SCHEMA, shared.N_ROWS)
@option("--want", HELP["plan --want"], multiple=True, metavar="QUESTION")
@option("--epsilon", "Say what this budget answers.  [default: the smallest that answers every question]", number)
@shared.FORESEEN
@shared.ledger_options("Say what the release would leave of this ledger. Nothing is charged.")
def plan(*, schema_path: Path, dataset: str | None, **options: Any) -> None:
    """Say which epsilon your questions need, before any budget is spent; or, with --epsilon, which it answers."""
    from sklar.answer.wants import plan as foresee
    from sklar.errors import BudgetError
    from sklar.public.tree import known_of

    book = shared.open_ledger(options.pop("ledger"), options.pop("ledger_key"))
    if book is None and dataset is not None:
        raise BudgetError("a data set was given, and no ledger. Give both.")
    foreseen = foresee(known_of(schema_path), ledger=book, dataset=dataset, **options)
    print_figures(foreseen, code=int(not foreseen.answered))


@command("Counts with error bars, from a model.", JSON)
@MODEL
@click.argument("predicate")
@option("--level", "Coverage of the confidence interval.", number, default="0.95")
@flag("--exact", "Refuse a predicate that cuts a bin, instead of using the model's share.")
def query(*, model_path: Path, predicate: str, **how: Any) -> None:
    """Count the rows that satisfy PREDICATE, with error bars, from a MODEL file. This costs no privacy."""
    from sklar.files.model import model_of

    print_figures(model_of(model_path).query(predicate, **how))


@command("Means, regressions and tests with honest errors, from a model.", JSON)
@MODEL
@click.argument("question")
@option("--level", "Coverage of the confidence intervals.", number, default="0.95")
@shared.choice("--target", "population table", HELP["infer --target"])
@flag("--midpoints", "Score bins by their midpoints. Without it, by the mean of the fitted shape inside them.")
def infer(*, model_path: Path, question: str, level: float, target: str | None, midpoints: bool) -> None:
    """Answer QUESTION about the table behind a MODEL file, with errors that account for its noise. No privacy cost."""
    from sklar.files.model import model_of

    model = model_of(model_path)
    binned = (each.name for each in model.schema.attributes if each.edges)
    scores: dict[str, Declared] | None = dict.fromkeys(binned, "midpoint") if midpoints else None
    print_figures(model.infer(question, level=level, target=target, scores=scores))
