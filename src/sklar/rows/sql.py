"""The rows of a query: a DuckDB file, or PostgreSQL by way of ADBC, streamed as Arrow record batches.

What a database says when it fails may quote a row ("could not convert 'Jane Doe'"), and its address may hold a
password: errors here are fixed sentences, and the address is in none of them, nor in any file or log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from sklar.errors import DataError
from sklar.machine.extras import require

_POSTGRES = ("postgresql://", "postgres://")
_BATCH_BYTES = 1 << 22


def is_address(text: str) -> bool:
    """Whether a text is the address of a database and not the name of a file."""
    return "://" in text


class Query:
    """A query against a database: a table that is read when its stream is asked for, each time anew.

    `database` is the path of a DuckDB file, or an address that begins with `postgresql://`.
    """

    __slots__ = ("_database", "_text")

    def __init__(self, database: str | Path, text: str) -> None:
        self._database, self._text = str(database), text
        if is_address(self._database) and not self._database.startswith(_POSTGRES):
            raise DataError("a database's address must begin with postgresql://, or be the path of a DuckDB file.")

    def __repr__(self) -> str:
        return f"Query({self._text!r})"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows, as the Arrow stream that `open_source` takes."""
        with ExitStack() as held:
            run = _run_postgres if self._database.startswith(_POSTGRES) else _run_duckdb
            reader = run(self._database, self._text, held)
            held.callback(reader.close)
            rows = _Rows(reader, held.pop_all())
        return pa.RecordBatchReader.from_batches(reader.schema, rows).__arrow_c_stream__(requested_schema)


class _Rows:
    """Record batches, and the connection that they last as long as: closed at their end, or when nobody wants them."""

    def __init__(self, reader: pa.RecordBatchReader, held: ExitStack) -> None:
        self._reader, self._held = reader, held

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return self._reader.read_next_batch()
        except BaseException:
            self._held.close()
            raise

    def __del__(self) -> None:
        self._held.close()


def _run_duckdb(path: str, text: str, held: ExitStack) -> pa.RecordBatchReader:
    require("duckdb", what="a query on a DuckDB file", package="duckdb", extra="sql")
    import duckdb

    if not Path(path).is_file():
        raise DataError(f"the DuckDB file '{path}' does not exist. Check the path.")
    connection = _try(
        lambda: duckdb.connect(path, read_only=True),
        f"'{path}' cannot be opened as a DuckDB file: it is damaged, of another format, or open elsewhere for writing.",
    )
    held.callback(connection.close)
    relation = _ask(lambda: connection.sql(text))
    if relation is None:
        raise DataError("the query returns no rows to read. It must be one SELECT.")
    return _ask(lambda: pa.RecordBatchReader.from_stream(relation))


def _run_postgres(address: str, text: str, held: ExitStack) -> pa.RecordBatchReader:
    require("adbc_driver_postgresql", what="a query on PostgreSQL", package="adbc-driver-postgresql", extra="sql")
    from adbc_driver_postgresql import dbapi

    connection = _try(
        lambda: dbapi.connect(address),
        "the PostgreSQL server cannot be reached, or it refused the user. Check the address with psql.",
    )
    held.callback(connection.close)
    cursor = connection.cursor()
    held.callback(cursor.close)

    def stream() -> pa.RecordBatchReader:
        # A release only reads; a query that would write is a mistake.
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
        cursor.execute(text)
        return cursor.fetch_record_batch()

    return _ask(stream)


def _ask(work: Callable[[], Any]) -> Any:
    return _try(
        work,
        "the database did not run the query. Run it in the database's own shell (duckdb, psql) to see why.",
    )


def _try(work: Callable[[], Any], message: str) -> Any:
    try:
        return work()
    except Exception:
        raise DataError(message) from None
