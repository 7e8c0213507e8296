"""Options and arguments that several commands share, and how their values are read."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from sklar.public.schema import Schema

_OPERATORS: dict[type, Callable[[float, float], float]] = {ast.Pow: operator.pow, ast.Div: operator.truediv}


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
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_arithmetic(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result = _OPERATORS[type(node.op)](_arithmetic(node.left), _arithmetic(node.right))
        if isinstance(result, float):
            return result
    raise ValueError


# How addresses of files begin, in object stores and on the file systems of a cluster. Others are those of databases.
_STORES = (
    *("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs"),
    *("hdfs", "webhdfs", "dbfs", "file"),
)


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


def _use_threads(context: click.Context, _option: click.Parameter, threads: int | None) -> None:
    from sklar.machine.threads import using

    context.with_resource(using(threads))


DATA = click.argument("data", type=FileOrAddress())
DATA_IF_GIVEN = click.argument("data", required=False, type=FileOrAddress())
MODEL = click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))

QUERY = click.option(
    "--query",
    metavar="SELECT",
    help="Read the rows of this query; DATA is then a DuckDB file or an address postgresql://...",
)
SCHEMA = click.option(
    "--schema",
    "schema_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="S.toml|MODEL",
    help="What is publicly known of the table: a schema file, or a model for its schema.",
)
DELTA = click.option(
    "--delta", type=number, default="2**-30", show_default=True, help="Chance that the epsilon bound fails."
)
METHODS = click.Choice(["auto", "mixture", "factor", "binary"])
NEIGHBORS = click.Choice(["replace-one", "add-remove"])
ENGINE = click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Where rows are counted and drawn: on this machine, or on Spark (sklar[spark]).",
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
SPREADSHEET = click.option(
    "--spreadsheet",
    is_flag=True,
    help="CSV only: put an apostrophe before texts that a spreadsheet would run as a formula (= + - @).",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON instead of text.")


def privacy_options(command: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """Add what `release` and `fit` take: the table, its schema and the privacy settings."""
    options = [
        DATA if required else DATA_IF_GIVEN,
        QUERY,
        SCHEMA,
        click.option("--epsilon", required=required, type=number, help="Privacy budget: smaller is more private."),
        DELTA,
        click.option(
            "--method",
            type=METHODS,
            help="The model to fit. auto, mixture: a mixture over whole attributes; factor: a low-rank Gaussian copula "
            "over whole attributes; binary: the paper's copula over dummies.  [default: auto]",
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
            type=NEIGHBORS,
            default="replace-one",
            show_default=True,
            help="Whom the guarantee compares: tables that differ in one row's "
            "content (their size is public), or in one row's presence; "
            "in all rows of one person where the schema names a person.",
        ),
        click.option(
            "--check",
            "check_first",
            is_flag=True,
            help="First look what the schema does to the rows, and stop before epsilon is spent where more than half "
            "of an attribute's values would be lost. What it says, and the exit code, are PRIVATE.",
        ),
        click.option(
            "--ledger",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Charge this ledger before anything is measured; it refuses to overspend (see sklar ledger).",
        ),
        click.option(
            "--ledger-key",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The ledger's key, where it has one.  [default: SKLAR_LEDGER_KEY of the environment]",
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
    # Decorators run from the last one to the first.
    for option in reversed(options):
        command = option(command)
    return command
