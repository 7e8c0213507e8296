"""Counting on Spark: into how many tasks it is cut, and what is said of one that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sklar.errors import DataError, SklarError
from sklar.public.schema import Schema
from sklar.rows.sums import length, runs_of

if TYPE_CHECKING:
    from pyspark import SparkContext

# Partial counts that are at most summed, in bytes: with more, neighboring parts share one.
MOST_SHUFFLED = 1 << 34
TASKS_PER_CORE = 4
# Bytes of partial counts that are worth a task of their own.
_SUMMED_BYTES = 1 << 27


def most_tasks(context: SparkContext, schema: Schema) -> int:
    """How many tasks may count at most, each to counts of its own."""
    return max(MOST_SHUFFLED // (4 * length(schema.cells)), TASKS_PER_CORE * int(context.defaultParallelism))


def reducers_of(context: SparkContext, schema: Schema, parts: int) -> int:
    """How many tasks sum the counts of this many parts: no more than what is sent to them is worth."""
    sent = 4 * length(schema.cells) * parts
    most = min(runs_of(schema.cells), TASKS_PER_CORE * int(context.defaultParallelism))
    return min(most, -(-sent // _SUMMED_BYTES))


@contextmanager
def retold(name: str) -> Iterator[None]:
    """What Spark says of a failure may quote a cell of the table: its kind alone is told."""
    try:
        yield
    except SklarError:
        raise
    except Exception as error:
        raise DataError(
            f"Spark could not count {name} ({type(error).__name__}). Nothing was released. Spark's own logs, which are "
            "private, say why."
        ) from None
