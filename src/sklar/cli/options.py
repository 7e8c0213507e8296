"""Commands, the options and arguments that several of them share, and how their values are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from sklar.cli.console import QUIET
from sklar.errors import BudgetError
from sklar.machine.stores import reading
from sklar.machine.wording import stated

if TYPE_CHECKING:
    from sklar.budget.ledger import Ledger

Parameter: TypeAlias = Callable[[Any], Any]
PATH = click.Path(path_type=Path)


class Written(click.Path):
    """A file or folder that a command writes. All other paths are read, and nothing may be written over them."""


WRITTEN = Written(path_type=Path)
# What the help of each command says below its first line.
HELP: dict[str, str] = stated("sklar.cli", "help.toml")
# More rows than anybody has.
MANY = click.IntRange(max=10**12)
METHODS = "auto mixture binary"
# How addresses of files begin, in object stores and on the file systems of a cluster. Others are those of databases.
_STORES = (
    *("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs"),
    *("hdfs", "webhdfs", "dbfs", "file"),
)


def number(text: str) -> float:
    """A number, which may be written as a power or a fraction: 1e-9, 2**-30, 1/1000. Nothing else is evaluated."""
    with suppress(ValueError, OverflowError, ZeroDivisionError):
        if "**" in text:
            base, power = map(float, text.split("**"))
            return math.pow(base, power)
        over, *under = map(float, text.split("/"))
        return over / math.prod(under)
    raise click.BadParameter(f"{text!r} is not a number such as 1e-9 or 2**-30.")


class FileOrAddress(click.Path):
    """A file or folder, which becomes a path, or the address of a store or database, which stays as it was written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A path, or the address as a text."""
        del param, ctx
        return value if "://" in str(value) else Path(value)


def table_of(data: Path | str, query: str | None) -> object:
    """The table that DATA and --query name: a path, an address of files, or the rows of the query."""
    if query is not None:
        from sklar.rows.sql import Query

        return Query(data, query)
    if isinstance(data, str) and data.split("://")[0].lower() not in _STORES:
        # The address may hold a password: the message does not repeat it.
        raise click.UsageError("DATA is the address of a database: say which rows with --query.")
    return data


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


def command(
    short: str | None, *last: Parameter, of: click.Group | None = None, name: str | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """A command, of a group or of `sklar` itself; `last` are the options that end its help, before --quiet."""

    def make(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def run(**given: Any) -> None:
            with reading(_read(given)):
                function(**given)

        made = (click.command if of is None else of.command)(name, short_help=short)(run)
        below = HELP.get(f"{made.name}" if of is None else f"{of.name} {made.name}", "")
        made.help = f"{made.help}\n\n{below}".strip()
        for parameter in (*last, QUIET):
            parameter(made)
        return made

    return make


def _read(given: dict[str, Any]) -> Iterator[object]:
    """The paths and addresses that the present command reads."""
    for parameter in click.get_current_context().command.params:
        kind, value = parameter.type, given.get(parameter.name or "")
        if isinstance(kind, click.Path) and not isinstance(kind, Written):
            yield from value if isinstance(value, tuple) else (value,)


def together(*parameters: Parameter) -> Parameter:
    """Several parameters as one decorator, in this order in the help."""

    def add(function: Any) -> Any:
        # Decorators run from the last one to the first.
        for parameter in reversed(parameters):
            function = parameter(function)
        return function

    return add


def option(name: str, text: str | None = None, kind: Any = None, *, to: str | None = None, **more: Any) -> Parameter:
    """An option, whose default is shown; `to` names the argument of the command."""
    names = (name,) if to is None else (name, to)
    return click.option(*names, type=kind, help=text, show_default="default" in more, **more)


def flag(name: str, text: str, **more: Any) -> Parameter:
    """A switch, off by default."""
    return option(name, text, is_flag=True, **more)


def path(name: str, metavar: str, text: str, **more: Any) -> Parameter:
    """A file or folder of this machine that is read."""
    return option(name, text, PATH, metavar=metavar, **more)


def written(name: str, metavar: str, text: str, **more: Any) -> Parameter:
    """A file or folder of this machine that is written."""
    return option(name, text, WRITTEN, metavar=metavar, **more)


def choice(name: str, values: str, text: str | None = None, **more: Any) -> Parameter:
    """One of some words."""
    return option(name, text, click.Choice(values.split()), **more)


def rows_out(name: str = "--out", text: str = "Where the synthetic rows go.", *, required: bool = True) -> Parameter:
    """A file of rows to write; on Spark it may be an address."""
    return option(name, text, Written(), metavar="OUT.csv|.parquet|...", required=required)


KIND = choice("--format", "csv parquet", HELP["--format"], default="csv", to="kind")


def neighbors_option(text: str | None = None) -> Parameter:
    """Whom the guarantee compares."""
    return choice("--neighbors", "replace-one add-remove", text, default="replace-one")


DATA = click.argument("data", type=FileOrAddress())
DATA_IF_GIVEN = click.argument("data", required=False, type=FileOrAddress())
MODEL = click.argument("model_path", metavar="MODEL", type=PATH)
SCHEMA_FILE = click.argument("schema_path", metavar="SCHEMA", type=PATH)
QUERY = option("--query", HELP["--query"], metavar="SELECT")
SCHEMA = path("--schema", "S.toml|MODEL", HELP["--schema"], to="schema_path", required=True)
SCHEMA_IF_GIVEN = path("--schema", "S.toml|MODEL", HELP["--schema"], to="schema_path")
SCHEMA_OR_DRAFT = together(
    SCHEMA_IF_GIVEN,
    flag("--draft", HELP["--draft"]),
    option("--people", "With --draft: the column that says whose rows are, or each-row.", metavar="COLUMN[=N]"),
)
DELTA = option("--delta", "Chance that the epsilon bound fails.", number, default="2**-30")
# The budget of a forecast.
FORESEEN = together(DELTA, neighbors_option(), choice("--method", METHODS, default="auto"))
N_ROWS = option("--rows", "How many rows the table has, exactly or roughly.", MANY, required=True)
ENGINE = choice("--engine", "local spark", HELP["--engine"], default="local")
THREADS = option("--threads", HELP["--threads"], click.IntRange(min=1), callback=_use_threads, expose_value=False)
ROWS = option("--rows", "Rows to draw.  [default: as many as the original has]", MANY)
SEED = option("--seed", "Makes the draw repeatable; it has no part in the privacy noise.", int)
DUMMIES = flag("--dummies", "The paper's 0/1 columns, one per level; rows may be inconsistent.")
SPREADSHEET = flag("--spreadsheet", HELP["--spreadsheet"])
OUT = rows_out()
REPLACE = flag("--replace", "Replace files that the same command on the same inputs did not write.")
RESUME = path("--resume", "KEPT.sklar", HELP["--resume"])
MODEL_OUT = written("--model", "OUT.sklar", "Where the model goes.  [default: beside --out]", to="model_path")


def ledger_options(
    text: str = "Charge this ledger before anything is measured; it refuses to overspend (see sklar ledger).",
    name: str = "the schema's",
) -> Parameter:
    """The ledger, its key, and the data set's name in it."""
    key = "The ledger's key, where it has one.  [default: SKLAR_LEDGER_KEY of the environment]"
    return together(
        path("--ledger", "FILE", text),
        path("--ledger-key", "FILE", key),
        option("--dataset", f"Its name in the ledger.  [default: {name}]", metavar="NAME"),
    )


def privacy_options(schema: Parameter) -> Parameter:
    """What `release` and `fit` take: the table, its schema and the privacy settings, all in place of --resume."""
    return together(
        DATA_IF_GIVEN,
        QUERY,
        schema,
        option("--epsilon", "Privacy budget: smaller is more private.", number),
        DELTA,
        choice("--method", METHODS, HELP["--method"]),
        choice("--preset", "paper", HELP["--preset"]),
        choice("--mechanism", "gaussian laplace", "Noise on the counts.  [default: gaussian]"),
        choice("--composition", "tight advanced basic", "How the tables' costs add up.  [default: tight]"),
        option("--target", HELP["--target"], metavar="COLUMN[,...]"),
        neighbors_option(HELP["--neighbors"]),
        flag("--check", HELP["--check"], to="check_first"),
        flag("--anyway", HELP["--anyway"]),
        ledger_options(),
        ENGINE,
        written("--checkpoint", "DIR", HELP["--checkpoint"]),
        THREADS,
    )
