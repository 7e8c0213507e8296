"""The rows of a query: a DuckDB file, or PostgreSQL by way of ADBC, as a stream of Arrow's C interface.

What a database says when it fails may quote a row ("could not convert 'Jane Doe'"), and its address may hold a
password: errors here are fixed sentences, and the address is in none of them, nor in any file or log.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sklar.errors import DataError
from sklar.machine.extras import require
from sklar.machine.wording import failing, said

_POSTGRES = ("postgresql://", "postgres://")
_BATCH_BYTES = 1 << 22


def is_address(text: str) -> bool:
    """Whether a text is the address of a database."""
    return text.startswith(_POSTGRES)


class Query:
    """A query against a database: a table that is read when its stream is asked for, each time anew.

    `database` is the path of a DuckDB file, or an address that begins with `postgresql://`. A query on a DuckDB file
    reads that file and no other, and writes none, whatever its views say: somebody else may have made the file.
    """

    __slots__ = ("_database", "_text")

    def __init__(self, database: str | Path, text: str) -> None:
        self._database, self._text = str(database), text
        if "://" in self._database and not is_address(self._database):
            raise DataError("a database's address must begin with postgresql://, or be the path of a DuckDB file.")

    def __repr__(self) -> str:
        return f"Query({self._text!r})"

    @property
    def reads_again(self) -> bool:
        """Whether it gives the same rows each time: one on a file that lies still, by nothing that changes."""
        changing = re.search(r"sample|random|uuid|now\s*\(|current_|today", self._text, re.IGNORECASE)
        return not is_address(self._database) and changing is None

    def run(self) -> Rows:
        """The rows, as a stream that ends its connection."""
        with ExitStack() as held:
            result = self._ask_postgres(held) if is_address(self._database) else self._ask_duckdb(held)
            return Rows(result, held.pop_all())

    def _ask_duckdb(self, held: ExitStack) -> Any:
        require("duckdb", what="a query on a DuckDB file", package="duckdb", extra="sql")
        import duckdb

        confined: dict[str, Any] = {"enable_external_access": "false", "lock_configuration": "true"}
        path = self._database
        if not Path(path).is_file():
            raise DataError(f"the DuckDB file '{path}' does not exist. Check the path.")
        with failing(DataError, said("rows.no_duckdb", path=path)):
            connection = duckdb.connect(path, read_only=True, config=confined)
        held.callback(connection.close)
        with failing(DataError, said("rows.not_run")):
            relation = connection.sql(self._text)
        if relation is None:
            raise DataError("the query returns no rows to read. It must be one SELECT.")
        return relation

    def _ask_postgres(self, held: ExitStack) -> Any:
        require("adbc_driver_postgresql", what="a query on PostgreSQL", package="adbc-driver-postgresql", extra="sql")
        from adbc_driver_postgresql import dbapi

        with failing(DataError, said("rows.no_postgres")):
            connection = dbapi.connect(self._database)
        held.callback(connection.close)
        cursor = connection.cursor()
        held.callback(cursor.close)
        with failing(DataError, said("rows.not_run")):
            # A release only reads; a query that would write is a mistake.
            cursor.execute("SET TRANSACTION READ ONLY")
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            cursor.execute(self._text)
            return cursor.fetch_arrow()


class Rows:
    """The result of a query, and its connection, which ends by `close` or when nobody wants the rows."""

    def __init__(self, result: Any, held: ExitStack) -> None:
        self._result, self._held = result, held

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._result.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """End the connection."""
        # The relation goes before its connection: DuckDB would complain of it at the end of the process.
        self._result = None
        self._held.close()

    def __del__(self) -> None:
        self.close()
