"""The command line. Exit codes: 0 done, 1 the request could not be carried out, 2 the command was not understood."""

from __future__ import annotations

import ast
import operator
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.errors import SklarError
from sklar.progress import watch

if TYPE_CHECKING:
    from sklar.model import Model
    from sklar.progress import Progress

_OPERATORS: dict[type, Callable[[float, float], float]] = {ast.Pow: operator.pow, ast.Div: operator.truediv}


def number(text: str) -> float:
    """A number, also written as a power or a fraction: 1e-9, 2**-30, 1/1000. Nothing else is evaluated."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return _arithmetic(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, OverflowError, ZeroDivisionError, RecursionError, MemoryError):
        raise click.BadParameter(f"{text!r} is not a number such as 1e-9 or 2**-30.") from None


def _arithmetic(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_arithmetic(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result = _OPERATORS[type(node.op)](_arithmetic(node.left), _arithmetic(node.right))
        if isinstance(result, float):
            return result
    raise ValueError


class Lines:
    """Progress as plain lines on standard error, one per stage."""

    def __init__(self) -> None:
        self._name, self._unit, self._steps, self._since = "", "", 0, 0.0

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Say what the stage before did, and begin this one."""
        self.close()
        del total
        self._name, self._unit, self._steps, self._since = name, unit, 0, time.monotonic()

    def advance(self, steps: int) -> None:
        """Count."""
        self._steps += steps

    def close(self) -> None:
        """Say what the last stage did."""
        if self._name:
            done = f" {self._steps:,} {self._unit}" if self._unit else ""
            click.echo(f"{self._name}:{done} ({time.monotonic() - self._since:.1f} s)", err=True)
        self._name = ""


class Bars:
    """Progress as bars on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[done]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None
        self._unit = ""
        self._bars.start()

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Finish the bar before, and begin this one."""
        self._finish()
        self._task = self._bars.add_task(name, total=total, done="")
        self._unit = unit

    def advance(self, steps: int) -> None:
        """Move the bar."""
        if self._task is None:
            return
        self._bars.advance(self._task, steps)
        task = self._bars.tasks[self._bars.task_ids.index(self._task)]
        rate = f", {task.speed:,.0f}/s" if task.speed else ""
        self._bars.update(self._task, done=f"{task.completed:,.0f} {self._unit}{rate}")

    def _finish(self) -> None:
        if self._task is not None:
            task = self._bars.tasks[self._bars.task_ids.index(self._task)]
            self._bars.update(self._task, total=task.completed or 1, completed=task.completed or 1)

    def close(self) -> None:
        """Leave the finished bars on the screen."""
        self._finish()
        self._bars.stop()


@contextmanager
def _progress() -> Iterator[Progress]:
    shown = Bars() if sys.stderr.isatty() else Lines()
    try:
        yield shown
    except BaseException:
        if isinstance(shown, Bars):
            shown.close()
        raise
    else:
        shown.close()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="sklar", message="sklar %(version)s")
def cli(**_debug: bool) -> None:
    """Release differentially private synthetic versions of wide, sensitive tables.

    Write a schema from public knowledge, run one command, get a synthetic table and a model file.

    \b
      sklar release data.csv --schema schema.toml --epsilon 1 --out synthetic.csv
      sklar demo
    """


def _privacy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.argument("data", type=click.Path(path_type=Path)),
            click.option(
                "--schema",
                "schema_path",
                required=True,
                type=click.Path(path_type=Path),
                metavar="S.toml",
                help="What is publicly known of the table.",
            ),
            click.option("--epsilon", required=True, type=number, help="Privacy budget: smaller is more private."),
            click.option(
                "--delta",
                type=number,
                default="2**-30",
                show_default=True,
                help="Chance that the epsilon bound fails.",
            ),
            click.option(
                "--method",
                type=click.Choice(["auto", "mixture", "factor", "binary"]),
                help="The model that is fitted: a latent one, by default the better of two by the noisy tables alone; "
                "binary is the paper's copula over dummies.  [default: auto]",
            ),
            click.option(
                "--preset",
                type=click.Choice(["paper"]),
                help="paper: Laplace noise, advanced composition and equal shares, as Asghar et al. (2020).",
            ),
            click.option(
                "--mechanism",
                type=click.Choice(["gaussian", "laplace"]),
                help="Noise on the counts.  [default: gaussian]",
            ),
            click.option(
                "--composition",
                type=click.Choice(["tight", "advanced", "basic"]),
                help="How the tables' costs add up.  [default: tight]",
            ),
            click.option(
                "--neighbors",
                type=click.Choice(["replace-one", "add-remove"]),
                default="replace-one",
                show_default=True,
                help="Whom the guarantee compares: tables that differ in one row's "
                "content (their size is public), or in one row's presence.",
            ),
        ]
    ):
        command = option(command)
    return command


_ROWS = click.option("--rows", type=int, help="Rows to draw.  [default: as many as the original has]")
_SEED = click.option("--seed", type=int, help="Makes the draw repeatable; it has no part in the privacy noise.")
_OUT = click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT.csv|.parquet",
    help="Where the synthetic rows go.",
)
_DUMMIES = click.option(
    "--dummies", is_flag=True, help="The paper's 0/1 columns, one per level; rows may be inconsistent."
)


@cli.command()
@_privacy_options
@_ROWS
@_SEED
@_DUMMIES
@_OUT
@click.option(
    "--model",
    "model_path",
    type=click.Path(path_type=Path),
    metavar="OUT.sklar",
    help="Where the model goes.  [default: beside --out]",
)
def release(out: Path, model_path: Path | None, rows: int | None, seed: int | None, **options: Any) -> None:
    """Measure DATA once with noise, fit a model, and draw a synthetic table from it.

    DATA is a CSV, TSV or Parquet file (also compressed), or a folder of them.

    \b
      sklar release adult.csv --schema adult.toml --epsilon 1 --out synthetic.csv
    """
    from sklar.model import check_draw
    from sklar.output import SUFFIXES, check_target

    check_target(out, SUFFIXES)
    model_path = check_target(model_path or out.with_suffix(".sklar"), (".sklar",))
    rows, seed = check_draw(rows, seed)
    with _progress() as progress:
        model = _fit(progress=progress, **options)
        # The model first: once privacy is spent, a failure to write rows must not lose what it bought.
        model.save(model_path)
        model.write(out, rows, seed=seed, progress=progress)
    _say_spent(model)
    click.echo(f"{rows or model.n_rows:,} synthetic rows in {out} (seed {seed}), the model in {model_path}.")
    click.echo(f"More rows cost no privacy: sklar sample {model_path} --rows N --out FILE")


@cli.command()
@_privacy_options
@_DUMMIES
@click.option(
    "--model",
    "model_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT.sklar",
    help="Where the model goes.",
)
def fit(model_path: Path, **options: Any) -> None:
    """Measure DATA once with noise and fit a model, without drawing rows.

    \b
      sklar fit adult.csv --schema adult.toml --epsilon 1 --model adult.sklar
    """
    from sklar.output import check_target

    check_target(model_path, (".sklar",))
    with _progress() as progress:
        model = _fit(progress=progress, **options)
        model.save(model_path)
    _say_spent(model)
    click.echo(f"The model is in {model_path}.")


def _fit(*, data: Path, schema_path: Path, progress: Progress, **options: Any) -> Model:
    from sklar.release import fit
    from sklar.schema import Schema

    return fit(data, Schema.load(schema_path), progress=progress, **options)


def _say_spent(model: Model) -> None:
    for line in model.summary():
        click.echo(line)


@cli.command()
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@_ROWS
@_SEED
@_OUT
def sample(model_path: Path, rows: int | None, seed: int | None, out: Path) -> None:
    """Draw synthetic rows from a MODEL file. This costs no privacy, however often it is done.

    \b
      sklar sample adult.sklar --rows 10000 --seed 7 --out synthetic.parquet
    """
    from sklar.model import check_draw, load

    rows, seed = check_draw(rows, seed)
    model = load(model_path)
    with _progress() as progress:
        model.write(out, rows, seed=seed, progress=progress)
    click.echo(f"{rows or model.n_rows:,} synthetic rows in {out} (seed {seed}). No privacy was spent.")


@cli.group()
def schema() -> None:
    """Draft or check a schema: what is publicly known of a table."""


@schema.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), metavar="S.toml", help="Where it goes.")
def draft(data: Path, out: Path) -> None:
    """Propose a schema from the rows of DATA, to be reviewed by hand before any release.

    \b
      sklar schema draft adult.csv -o adult.toml
    """
    from sklar.output import check_target, write_text
    from sklar.private.inspect import draft as propose

    check_target(out, (".toml",))
    with _progress() as progress:
        proposed = propose(data, name=data.name.split(".")[0] or "table", progress=progress)
    write_text(out, proposed.to_toml())
    click.echo(f"{proposed.schema.n_attributes} attributes drafted in {out}.")
    for name, reason in proposed.left_out.items():
        click.echo(f"Left out: {name}: {reason}.")
    click.echo(
        "PRIVATE until reviewed: its domains were read from the rows. Check each entry against public knowledge,"
    )
    click.echo("correct it, and remove its line reviewed = false. A release refuses the file until then.")


@schema.command()
@click.argument("schema_path", metavar="SCHEMA", type=click.Path(path_type=Path))
@click.argument("data", required=False, type=click.Path(path_type=Path))
def check(schema_path: Path, data: Path | None) -> None:
    """Validate SCHEMA; with DATA, tell the custodian what would be clipped or folded.

    \b
      sklar schema check adult.toml adult.csv
    """
    from sklar.schema import Schema

    described = Schema.load(schema_path)
    m = described.n_attributes
    click.echo(f"{schema_path}: table '{described.name}', {m} attributes, {described.n_levels} levels in all,")
    click.echo(f"{m} one-way and {m * (m - 1) // 2} two-way tables to measure.")
    waiting = [attribute.name for attribute in described.attributes if not attribute.reviewed]
    if waiting:
        click.echo(f"Not reviewed, so a release would refuse it: {', '.join(waiting)}.")
    if data is None:
        return
    from sklar.private.inspect import check as look

    with _progress() as progress:
        fates = look(data, described, progress=progress)
    click.echo("PRIVATE, for the custodian only: exact counts of values, never part of a release.")
    click.echo(f"{'attribute':<24}{'in domain':>12}{'missing':>10}{'clipped':>10}{'folded':>10}{'in no cell':>12}")
    for fate in fates:
        click.echo(
            f"{fate.attribute:<24.24}{fate.listed:>12,}{fate.missing:>10,}{fate.clipped:>10,}{fate.folded:>10,}"
            f"{fate.no_cell:>12,}"
        )


@cli.command()
@click.option("--out", type=click.Path(path_type=Path), default="sklar-demo", show_default=True, help="Folder to fill.")
@click.option("--rows", type=int, default=30_000, show_default=True, help="Rows of the generated table.")
@click.option("--epsilon", type=number, default="1", show_default=True, help="Privacy budget.")
def demo(out: Path, rows: int, epsilon: float) -> None:
    """Generate a census-like table, release it, and show what came out."""
    from sklar.demo import run

    with _progress() as progress:
        lines = run(out, rows=rows, epsilon=epsilon, progress=progress)
    for line in lines:
        click.echo(line)


@cli.command()
@click.argument("real", type=click.Path(path_type=Path))
@click.argument("synthetic", type=click.Path(path_type=Path))
@click.option("--schema", "schema_path", required=True, type=click.Path(path_type=Path), metavar="S.toml")
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="OUT.json", help="All figures as JSON.")
@click.option(
    "--plot", "plot_path", type=click.Path(path_type=Path), metavar="OUT.png|.svg", help="CDFs of the errors."
)
@click.option("--target", help="An attribute to predict: trains on both tables, tests on --test.")
@click.option("--test", type=click.Path(path_type=Path), help="Real rows kept apart, for --target.")
def evaluate(
    real: Path,
    synthetic: Path,
    schema_path: Path,
    json_path: Path | None,
    plot_path: Path | None,
    target: str | None,
    test: Path | None,
) -> None:
    """Compare SYNTHETIC with the REAL rows, for the custodian's eyes only.

    \b
      sklar evaluate adult.csv synthetic.csv --schema adult.toml --plot PRIVATE.png
    """
    import json

    from sklar.evaluate import evaluate as judge
    from sklar.evaluate import plot
    from sklar.output import check_target, write_text
    from sklar.schema import Schema

    if json_path:
        check_target(json_path, (".json",))
    if plot_path:
        check_target(plot_path, (".png", ".svg"))
    with _progress() as progress:
        found = judge(real, synthetic, Schema.load(schema_path), target=target, test=test, progress=progress)
    for line in found.lines():
        click.echo(line)
    if json_path:
        write_text(json_path, json.dumps(found.to_dict(), indent=1) + "\n")
    if plot_path:
        plot(found, plot_path)
    for path in filter(None, (json_path, plot_path)):
        click.echo(f"PRIVATE as well: {path}")


@cli.command()
@click.argument("shape", type=click.Choice(["census", "hospital", "dss", "syn1", "syn2"]))
@click.option("--rows", type=int, help="Rows to generate.  [default: census 30,000, hospital 10,000, others 5,240,260]")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another table.")
@_OUT
@click.option(
    "--schema",
    "schema_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="S.toml",
    help="Where its public schema goes.",
)
def generate(shape: str, rows: int | None, seed: int, out: Path, schema_path: Path) -> None:
    """Generate a test table of a given SHAPE, with its schema: nothing in it is about anyone.

    \b
      sklar generate dss --rows 100000 --out dss.parquet --schema dss.toml
    """
    from sklar.generate import SHAPES, schema_toml
    from sklar.generate import generate as make
    from sklar.output import SUFFIXES, check_target, write_batches, write_text

    check_target(out, SUFFIXES)
    check_target(schema_path, (".toml",))
    arrow_schema, batches = make(shape, rows=rows, seed=seed)
    with _progress() as progress:
        progress.stage("generate", total=rows or SHAPES[shape].rows, unit="rows")
        write_batches(out, arrow_schema, watch(batches, progress), None)
    write_text(schema_path, schema_toml(shape))
    click.echo(
        f"{rows or SHAPES[shape].rows:,} rows of {SHAPES[shape].description} in {out}, the schema in {schema_path}."
    )


def main() -> None:
    """Run the command line; every failure is one line and an exit code."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in sys.argv[1:]:
            raise
        click.echo(f"sklar: {_explain(error)}", err=True)
        sys.exit(1)


def _explain(error: BaseException) -> str:
    if isinstance(error, SklarError):
        return str(error)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted. No file was left half-written."
    if isinstance(error, MemoryError):
        return "out of memory. Use a schema with fewer levels, or a larger machine."
    # The text of an unforeseen error might quote a row.
    return f"unexpected {type(error).__name__}. Run sklar --debug with the same command to see where."
