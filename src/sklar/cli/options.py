"""Options and arguments that several commands share, and how their values are read."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sklar.errors import BudgetError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from sklar.budget.ledger import Ledger
    from sklar.public.schema import Schema

C = TypeVar("C", bound=Callable[..., Any] | click.Command)
PATH = click.Path(path_type=Path)
_OPERATORS: dict[type, Callable[[float, float], float]] = {ast.Pow: operator.pow, ast.Div: operator.truediv}
# How addresses of files begin, in object stores and on the file systems of a cluster. Others are those of databases.
_STORES = (
    *("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs"),
    *("hdfs", "webhdfs", "dbfs", "file"),
)


def number(text: str) -> float:
    """A number, which may be written as a power or a fraction: 1e-9, 2**-30, 1/1000. Nothing else is evaluated."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return _arithmetic(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, OverflowError, ZeroDivisionError, RecursionError, MemoryError):
        raise click.BadParameter(f"{text!r} is not a number such as 1e-9 or 2**-30.") from None


def _arithmetic(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub()):
            return -_arithmetic(node.operand)
        case ast.BinOp(op=ast.Pow() | ast.Div()):
            result = _OPERATORS[type(node.op)](_arithmetic(node.left), _arithmetic(node.right))
            if isinstance(result, float):
                return result
    raise ValueError


class FileOrAddress(click.ParamType):  # type: ignore[type-arg]
    """A file or folder, which becomes a path, or the address of a store or database, which stays as it was written."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A path, or the address as a text."""
        del param, ctx
        return value if "://" in str(value) else Path(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Files and folders."""
        return click.Path().shell_complete(ctx, param, incomplete)


def table_of(data: Path | str, query: str | None) -> object:
    """The table that DATA and --query name: a path, an address of files, or the rows of the query."""
    if query is not None:
        from sklar.rows.sql import Query

        return Query(data, query)
    if isinstance(data, str) and data.split("://")[0].lower() not in _STORES:
        # The address may hold a password: the message does not repeat it.
        raise click.UsageError("DATA is the address of a database: say which rows with --query.")
    return data


def schema_of(path: Path) -> Schema:
    """The schema that a file states: a schema file, or a model, whose schema lists what its release found."""
    from zipfile import is_zipfile

    if path.suffix.lower() == ".sklar" or is_zipfile(path):
        from sklar.files.archive import load

        return load(path).schema
    from sklar.public.schema import Schema

    return Schema.load(path)


def open_ledger(path: Path | None, key: Path | None) -> Ledger | None:
    """The ledger that --ledger and --ledger-key name."""
    if path is None:
        if key is not None:
            raise BudgetError("a ledger's key was given, and no ledger. Give both.")
        return None
    from sklar.budget.ledger import Ledger

    return Ledger(path, key=key)


def _use_threads(context: click.Context, _option: click.Parameter, threads: int | None) -> None:
    from sklar.machine.threads import using

    context.with_resource(using(threads))


def flag(name: str, text: str, *, to: str | None = None) -> Callable[[C], C]:
    """A switch, off by default; `to` names the argument of the command."""
    return click.option(name, *filter(None, [to]), is_flag=True, help=text)


def path(name: str, metavar: str, text: str, *, to: str | None = None, required: bool = False) -> Callable[[C], C]:
    """A file or folder of this machine."""
    return click.option(name, *filter(None, [to]), type=PATH, metavar=metavar, required=required, help=text)


def choice(name: str, values: str, text: str | None = None, *, default: str | None = None) -> Callable[[C], C]:
    """One of some words."""
    kind = click.Choice(values.split())
    return click.option(name, type=kind, default=default, show_default=default is not None, help=text)


def together(*options: Callable[[Any], Any]) -> Callable[[C], C]:
    """Several options as one decorator, in this order in the help."""

    def add(command: C) -> C:
        # Decorators run from the last one to the first.
        for option in reversed(options):
            command = option(command)
        return command

    return add


DATA = click.argument("data", type=FileOrAddress())
DATA_IF_GIVEN = click.argument("data", required=False, type=FileOrAddress())
MODEL = click.argument("model_path", metavar="MODEL", type=PATH)
SCHEMA_FILE = click.argument("schema_path", metavar="SCHEMA", type=PATH)

QUERY = click.option(
    "--query",
    metavar="SELECT",
    help="Read the rows of this query; DATA is then a DuckDB file or an address postgresql://...",
)
SCHEMA = path(
    "--schema",
    "S.toml|MODEL",
    "What is publicly known of the table: a schema file, or a model for its schema.",
    to="schema_path",
    required=True,
)
DELTA = click.option(
    "--delta", type=number, default="2**-30", show_default=True, help="Chance that the epsilon bound fails."
)


def neighbors_option(text: str | None = None) -> Callable[[C], C]:
    """Whom the guarantee compares."""
    return choice("--neighbors", "replace-one add-remove", text, default="replace-one")


METHODS = "auto mixture binary"
# The budget of a forecast.
FORESEEN = together(DELTA, neighbors_option(), choice("--method", METHODS, default="auto"))
N_ROWS = click.option("--rows", required=True, type=int, help="How many rows the table has, exactly or roughly.")
ENGINE = choice(
    "--engine",
    "local spark",
    "Where rows are counted and drawn: on this machine, or on Spark (sklar[spark]).",
    default="local",
)
THREADS = click.option(
    "--threads",
    type=click.IntRange(min=1),
    callback=_use_threads,
    expose_value=False,
    help="Threads that work at once.  [default: one per processor]",
)
ROWS = click.option("--rows", type=int, help="Rows to draw.  [default: as many as the original has]")
SEED = click.option("--seed", type=int, help="Makes the draw repeatable; it has no part in the privacy noise.")
DUMMIES = flag("--dummies", "The paper's 0/1 columns, one per level; rows may be inconsistent.")
SPREADSHEET = flag(
    "--spreadsheet", "CSV only: put an apostrophe before texts that a spreadsheet would run as a formula (= + - @)."
)


def rows_out(
    name: str = "--out", text: str = "Where the synthetic rows go.", *, required: bool = True
) -> Callable[[C], C]:
    """A file of rows to write; on Spark it may be an address."""
    return click.option(name, required=required, type=click.Path(), metavar="OUT.csv|.parquet", help=text)


OUT = rows_out()
MODEL_OUT = path("--model", "OUT.sklar", "Where the model goes.  [default: beside --out]", to="model_path")


def ledger_options(
    text: str = "Charge this ledger before anything is measured; it refuses to overspend (see sklar ledger).",
    name: str = "the schema's",
) -> Callable[[C], C]:
    """The ledger, its key, and the data set's name in it."""
    return together(
        path("--ledger", "FILE", text),
        path(
            "--ledger-key",
            "FILE",
            "The ledger's key, where it has one.  [default: SKLAR_LEDGER_KEY of the environment]",
        ),
        click.option("--dataset", metavar="NAME", help=f"Its name in the ledger.  [default: {name}]"),
    )


def privacy_options(*, required: bool = True) -> Callable[[C], C]:
    """What `release` and `fit` take: the table, its schema and the privacy settings."""
    return together(
        DATA if required else DATA_IF_GIVEN,
        QUERY,
        SCHEMA,
        click.option("--epsilon", required=required, type=number, help="Privacy budget: smaller is more private."),
        DELTA,
        choice(
            "--method",
            METHODS,
            "The model to fit. auto, mixture: a mixture over whole attributes; binary: the paper's copula over "
            "dummies.  [default: auto]",
        ),
        choice(
            "--preset", "paper", "paper: Laplace noise, advanced composition and equal shares, as Asghar et al. (2020)."
        ),
        choice("--mechanism", "gaussian laplace", "Noise on the counts.  [default: gaussian]"),
        choice("--composition", "tight advanced basic", "How the tables' costs add up.  [default: tight]"),
        neighbors_option(
            "Whom the guarantee compares: tables that differ in one row's content (their size is public), or in one "
            "row's presence; in all rows of one person where the schema names a person."
        ),
        flag(
            "--check",
            "Check the schema against the rows first, and stop before epsilon is spent where more than half of an "
            "attribute's values would be lost. What it says, and the exit code, are PRIVATE.",
            to="check_first",
        ),
        ledger_options(),
        ENGINE,
        path(
            "--checkpoint",
            "DIR",
            "Keep exact counts (PRIVATE) here while a folder of files is counted, to go on after an interruption; "
            "deleted in the end.",
        ),
        THREADS,
    )
