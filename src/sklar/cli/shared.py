"""What several commands share: numbers, progress, options."""

from __future__ import annotations

import ast
import operator
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.machine.progress import SILENT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from sklar.machine.progress import Progress

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


class Data(click.ParamType):  # type: ignore[type-arg]
    """A file, a folder, or the address of a database, which is kept as it was written."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A path, or the address as a text."""
        del param, ctx
        return value if "://" in str(value) else Path(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Files and folders."""
        return click.Path().shell_complete(ctx, param, incomplete)


def table_of(data: Path | str, query: str | None) -> object:
    """What `open_source` takes: the path, or the query's rows."""
    if query is not None:
        from sklar.rows.sql import Query

        return Query(data, query)
    from sklar.rows.read import is_store

    if isinstance(data, str) and not is_store(data):
        # Its address may hold a password: it is not repeated.
        raise click.UsageError("DATA is the address of a database: say which rows with --query.")
    return data


_QUIET = "sklar.quiet"


def _be_quiet(context: click.Context, _option: click.Parameter, quiet: bool) -> None:  # noqa: FBT001
    context.meta[_QUIET] = quiet


def quiet_option() -> click.Option:
    """The option that every command has."""
    return click.Option(
        ["--quiet"],
        is_flag=True,
        callback=_be_quiet,
        expose_value=False,
        help="No progress and no prose: print what was asked for, and errors.",
    )


def is_quiet() -> bool:
    """Whether this command was told to be quiet."""
    return bool(click.get_current_context().meta.get(_QUIET))


def say(text: str) -> None:
    """Print prose, unless told to be quiet. What a command was asked for is printed with `click.echo`."""
    if not is_quiet():
        click.echo(text)


def print_json(document: Any) -> None:
    """Print a document as JSON."""
    import json

    click.echo(json.dumps(document, indent=1, ensure_ascii=False, default=os.fspath))


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
def show_progress() -> Iterator[Progress]:
    """Bars on a terminal, plain lines elsewhere, both on standard error; nothing when told to be quiet."""
    if is_quiet():
        yield SILENT
        return
    shown = Bars() if sys.stderr.isatty() else Lines()
    try:
        yield shown
    except BaseException:
        if isinstance(shown, Bars):
            shown.close()
        raise
    else:
        shown.close()


def _use_threads(context: click.Context, _option: click.Parameter, threads: int | None) -> None:
    from sklar.machine.threads import using

    context.with_resource(using(threads))


THREADS = click.option(
    "--threads",
    type=click.IntRange(min=1),
    callback=_use_threads,
    expose_value=False,
    help="Threads that work at once.  [default: one per processor]",
)


ENGINE = click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Where rows are counted and drawn: on this machine, or on Spark (sklar[spark]).",
)
DATA = click.argument("data", type=Data())
DATA_OR_TABLES = click.argument("data", required=False, type=Data())
QUERY = click.option(
    "--query",
    metavar="SELECT",
    help="Read the rows of this query; DATA is then a DuckDB file or an address postgresql://...",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON instead of text.")


def privacy_options(command: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """The table, its schema and the privacy settings: what `release` and `fit` take."""
    for option in reversed(
        [
            DATA if required else DATA_OR_TABLES,
            QUERY,
            click.option(
                "--schema",
                "schema_path",
                required=True,
                type=click.Path(path_type=Path),
                metavar="S.toml",
                help="What is publicly known of the table.",
            ),
            click.option("--epsilon", required=required, type=number, help="Privacy budget: smaller is more private."),
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
            click.option(
                "--ledger",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Charge this ledger before anything is measured; it refuses to overspend (see sklar ledger).",
            ),
            click.option("--dataset", metavar="NAME", help="Its name in the ledger.  [default: the schema's]"),
            ENGINE,
            click.option(
                "--checkpoint",
                type=click.Path(path_type=Path),
                metavar="DIR",
                help="Keep exact counts (PRIVATE) here while a folder of files is counted, to go on after an "
                "interruption; deleted in the end.",
            ),
            THREADS,
        ]
    ):
        command = option(command)
    return command


ROWS = click.option("--rows", type=int, help="Rows to draw.  [default: as many as the original has]")
SEED = click.option("--seed", type=int, help="Makes the draw repeatable; it has no part in the privacy noise.")
OUT = click.option(
    "--out",
    required=True,
    type=click.Path(),
    metavar="OUT.csv|.parquet",
    help="Where the synthetic rows go.",
)
DUMMIES = click.option(
    "--dummies", is_flag=True, help="The paper's 0/1 columns, one per level; rows may be inconsistent."
)
