"""Packages that are optional, or slow to load, and Spark's session where it is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args

from sklar.errors import DataError, MissingExtraError
from sklar.machine.wording import failing, said

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

Engine = Literal["local", "spark"]


def require(module: str, *, what: str, package: str, extra: str) -> None:
    """Refuse, with the remedy, when `module` cannot be imported."""
    try:
        import_module(module)
    except ImportError:
        raise MissingExtraError(f"{what} needs {package}: pip install 'sklar[{extra}]'") from None


class _Lazy(ModuleType):
    """Stands for a package until one of its names is looked up, and holds all its names from then on."""

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


def lazily(name: str) -> Any:
    """A package that is imported at its first use: loading polars takes a fifth of a second."""
    return _Lazy(name)


def choose_engine(engine: Engine | None, data: object) -> Engine:
    """The engine: as told, else Spark for Spark's own tables and this machine for all others."""
    if engine is None:
        return "spark" if is_spark(data) else "local"
    if engine not in get_args(Engine):
        raise DataError(f"engine must be one of {', '.join(get_args(Engine))}, got {engine!r}.")
    return engine


def is_spark(data: object) -> TypeGuard[DataFrame]:
    """Whether this is a Spark DataFrame, without loading Spark."""
    return any(kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(data).mro())


def files_of_frame(frame: DataFrame) -> list[str] | None:
    """The Parquet files that a DataFrame is, None where it is anything else: a view of some of them, a join, a filter.

    Only the plan is looked at, which is public. Options of a reader, and columns in the names of folders, have a
    meaning of Spark's own: then Spark reads.
    """
    with suppress(Exception):
        plan = frame._jdf.queryExecution().analyzed()
        # Any other relation lacks these methods.
        relation = plan.relation()
        kinds = [each.getClass().getSimpleName() for each in (plan, relation, relation.fileFormat())]
        options = int(relation.options().size()) - int(relation.options().contains("path"))
        plain = kinds == ["LogicalRelation", "HadoopFsRelation", "ParquetFileFormat"]
        if plain and not options and not relation.partitionSchema().length():
            return sorted(frame.inputFiles())
    return None


def session() -> SparkSession:
    """The session that is active, else one by the settings of spark-submit or the environment: none is ours."""
    for module in ("pyspark", "pandas"):
        require(module, what="the engine 'spark'", package="PySpark 4 and Java 17", extra="spark")
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        return active
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Without spark-submit, whose settings say it, Spark would take the first Python on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with failing(MissingExtraError, said("machine.no_spark")):
        return SparkSession.builder.appName("sklar").getOrCreate()


@contextmanager
def one_thread(context: SparkContext) -> Iterator[None]:
    """Tasks that begin inside the block run in Python processes that read with one thread: Spark runs a task a core."""
    before = dict(context.environment)
    # Polars would start a thread for every core of a machine, in every task.
    context.environment["POLARS_MAX_THREADS"] = "1"
    try:
        yield
    finally:
        context.environment.clear()
        context.environment.update(before)
