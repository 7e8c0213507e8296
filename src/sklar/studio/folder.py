"""The files that exist for the studio: those below one folder, links followed and confined to it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sklar.errors import DataError, OutputError, SchemaError, SklarError
from sklar.files.write import write_text
from sklar.machine.wording import failing
from sklar.rows.sql import Query
from sklar.rows.text import kind_of

# The studio's own notes: which file and query a table is, what was planned, how far work is. Private.
STATE = ".sklar-studio"
LEDGER = "ledger.db"
DATABASES = (".duckdb", ".ddb", ".db")
TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".ndjson", ".jsonl")
_MOST_FILES, _MOST_DEPTH, _PUBLISHED = 2_000, 4, "passport.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Desk:
    """One table that is worked on: where its rows are, and what was chosen that no other file holds.

    `rows` is how many a draft has seen; None before. `epsilon` is what the plan has come to, `goals` are questions
    that it must answer, each with its margin.
    """

    name: str
    data: str
    query: str | None = None
    rows: int | None = None
    epsilon: float = 1.0
    target: str = ""
    goals: Sequence[str] = ()

    @property
    def schema(self) -> str:
        """The name of its schema file."""
        return f"{self.name}.toml"


class Folder:
    """The folder of one run of the studio."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise DataError(f"'{root}' is no folder. Name the folder that holds the table.")
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise OutputError(f"the folder '{root}' cannot be written to. The studio keeps schema and ledger there.")

    def inside(self, name: str) -> Path:
        """The path of a name below the folder, links resolved; refused where it leads out of it, or to our notes."""
        odd = "this is no path below the studio's folder. Choose a file from the list."
        with failing(DataError, odd, (OSError, ValueError, RuntimeError)):
            path = (self.root / name).resolve()
            path.exists()
        if not path.is_relative_to(self.root) or STATE in path.relative_to(self.root).parts:
            raise DataError("this path leads out of the studio's folder. Choose a file from the list.")
        return path

    def relative(self, path: Path) -> str:
        """A path as commands in the folder write it."""
        return path.relative_to(self.root).as_posix()

    def files(self) -> tuple[list[dict[str, Any]], bool]:
        """The tables below the folder: paths, sizes, and which need a query; and whether there are more of them."""
        tables: list[dict[str, Any]] = []
        for parent, folders, names in os.walk(self.root):
            depth = len(Path(parent).relative_to(self.root).parts)
            folders[:] = sorted(each for each in folders if not each.startswith(".")) if depth < _MOST_DEPTH else []
            # What was published is no table to release.
            for name in () if _PUBLISHED in names else sorted(names):
                path = Path(parent) / name
                kind, model = kind_of(path), path.with_name(name.split(".")[0]).with_suffix(".sklar")
                # Neither are the ledger, and synthetic rows that lie beside their model.
                if kind not in (*TABLES, *DATABASES) or name.startswith(".") or name == LEDGER or model.is_file():
                    continue
                with suppress(OSError, SklarError):
                    size = self.inside(str(path)).stat().st_size
                    tables.append({"path": self.relative(path), "bytes": size, "database": kind in DATABASES})
                if len(tables) >= _MOST_FILES:
                    return tables, True
        return tables, False

    def open(self, data: str, query: str | None) -> Desk:
        """The desk of a table: the one that it has, or a new one."""
        path = self.inside(data)
        if not path.is_file():
            raise DataError(f"the file '{data}' does not exist any more. Choose another from the list.")
        database = kind_of(path) in DATABASES
        if database and not query:
            raise DataError(f"'{data}' is a database: say which rows to read with a query (SELECT ...).")
        query = query if database else None
        desks = self.desks()
        for desk in desks:
            if (desk.data, desk.query) == (data, query):
                return desk
        taken = {desk.name for desk in desks}
        stem = re.sub(r"[^a-z0-9_-]+", "-", path.name.split(".")[0].lower()).strip("-_") or "table"
        name = next(each for each in (stem, *(f"{stem}-{n}" for n in range(2, 1000))) if each not in taken)
        desk = Desk(name=name, data=data, query=query)
        self.save(desk)
        return desk

    def desks(self) -> list[Desk]:
        """All tables that are worked on."""
        desks = []
        for path in sorted((self.root / STATE).glob("*.desk.json")):
            with suppress(SklarError):
                desks.append(self.desk(path.name.removesuffix(".desk.json")))
        return desks

    def desk(self, name: str) -> Desk:
        """The table of that name."""
        if not _NAME.fullmatch(name):
            raise DataError("there is no such table here. Choose a file first.")
        path = self.root / STATE / f"{name}.desk.json"
        if not path.exists():
            raise DataError(f"no table '{name}' was opened here. Choose a file first.")
        unread = f"the studio's notes on '{name}' cannot be read. Open its file again."
        with failing(DataError, unread, (OSError, ValueError, TypeError)):
            return Desk(**json.loads(path.read_text(encoding="utf-8")))

    def save(self, desk: Desk, **changes: Any) -> Desk:
        """Keep what was chosen for a table, for its owner alone."""
        desk = replace(desk, **changes)
        write_text(self.notes() / f"{desk.name}.desk.json", json.dumps(asdict(desk)), private=True)
        return desk

    @property
    def ledger(self) -> Path:
        """The ledger of the folder, whether it exists or not."""
        return self.root / LEDGER

    def releases(self, desk: Desk) -> list[int]:
        """The numbers of a table's releases, oldest first."""
        numbers = (path.stem.removeprefix(f"{desk.name}-") for path in self.root.glob(f"{desk.name}-*.sklar"))
        return sorted(int(number) for number in numbers if number.isdigit())

    def schema_text(self, desk: Desk) -> str | None:
        """The schema file of a table; None before there is one."""
        path = self.inside(desk.schema)
        if not path.is_file():
            return None
        unread = f"schema file '{desk.schema}' cannot be read. It must be a UTF-8 text file."
        with failing(SchemaError, unread, (OSError, UnicodeDecodeError)):
            return path.read_text(encoding="utf-8")

    def notes(self) -> Path:
        """Where the studio keeps its own notes: its owner's alone."""
        path = self.root / STATE
        with failing(OutputError, f"'{path}' cannot be made: {{why}}. The studio keeps its notes there.", OSError):
            path.mkdir(mode=0o700, exist_ok=True)
        return path

    def table(self, desk: Desk) -> object:
        """The rows of a table, as the command line would read them."""
        path = self.inside(desk.data)
        return path if desk.query is None else Query(path, desk.query)
