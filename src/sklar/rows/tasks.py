"""Counting on Spark: into how many tasks it is cut, and what is said of one that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sklar.errors import DataError, SklarError
from sklar.public.schema import Schema
from sklar.rows.sums import length

if TYPE_CHECKING:
    from pyspark import SparkContext

# Partial counts that are at most summed, in bytes: with more, neighboring parts share one.
MOST_SHUFFLED = 1 << 34
TASKS_PER_CORE = 4


def most_tasks(context: SparkContext, schema: Schema) -> int:
    """How many tasks may count at most, each to counts of its own."""
    return max(MOST_SHUFFLED // (8 * length(schema.cells)), TASKS_PER_CORE * int(context.defaultParallelism))


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
