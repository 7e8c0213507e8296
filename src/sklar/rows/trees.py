"""Linked tables to exact answers about people: rows of all tables meet by person, in buckets (`rows.bounded`).

A person's rows are chosen and matched in one bucket, by that person's rows and keys alone: of rows of people with one
key one; of others those that name that key, or the id of one of *that person's* rows, so that ids which two people
share bind nothing; of rows that must be unique one; of too many, `at_most`. What is left is dealt out (`people.deal`):
a person gives the same number of tokens to every table, however many rows they have, so noise does not grow with that
number (`kernel.queries`, `Tables.bound` and `Shares.bound`). What is decided here is to which cells:

- of the joint table, a person's tokens are dealt evenly to combinations of one row of each table, each below the one
  that it hangs on: to all of them, or, of many, to some in which every row has its part;
- of two rows of a person, to those that stand beside each other in the order of their keys, which is random;
- where rows have an order, to steps from a row to the next one. A row whose time is no level has no place in it.

The same secrets choose the same rows, and deal the same tokens, on files, in memory and on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.plan import GAP, NUMBER, TOKENS, sides_of
from sklar.errors import DataError
from sklar.kernel.cells import Ints
from sklar.kernel.people import choose_rows, deal
from sklar.kernel.queries import NO_CELL, Entries
from sklar.machine.extras import Engine, choose_engine
from sklar.machine.progress import SILENT, Progress
from sklar.machine.threads import in_order, merged
from sklar.machine.wording import said
from sklar.public.attribute import Attribute
from sklar.public.settings import Person
from sklar.public.tree import Branch, Course, Tree, none_code
from sklar.rows.bounded import KEY, MARKS, Secrets, bucketed, ids_of, marks_of, placed, records_of
from sklar.rows.count import Ask, Exact, count, no_answers
from sklar.rows.encode import dealt, encode_column, numbers_of, value_column
from sklar.rows.read import open_source, reads_again
from sklar.rows.source import Source, files_at_once, require_columns
from sklar.rows.sql import Query

if TYPE_CHECKING:
    from sklar.rows.engines import CountedTable
    from sklar.rows.executors import SparkTree

# Combinations of a person's rows that are looked at, unless one table has more rows; the parts that a row with others
# below it deals to combinations of those; and combinations that are counted at a time.
_COMBINED, _PARTS, _AT_ONCE = 64, 1 << 10, 1 << 18
_TABLE, _ID, _ABOVE, _TIME = "_table", "_id", "_above", "_time"
_DATABASES = (".duckdb", ".ddb", ".db")


def tables_of(data: object, tree: Tree) -> dict[str, object]:
    """The tables of a release by name: as given, the files of a folder by their names, or the tables of a database."""
    names = [branch.name for branch in tree.branches]
    if isinstance(data, Mapping):
        found = {name: data[name] for name in names if name in data}
    elif isinstance(data, str | Path) and Path(data).is_dir():
        by_name = {path.name.split(".")[0]: path for path in sorted(Path(data).iterdir(), reverse=True)}
        found = {name: by_name[name] for name in names if name in by_name}
    elif isinstance(data, str | Path) and Path(data).suffix.lower() in _DATABASES:
        found = {name: Query(data, f'SELECT * FROM "{name}"') for name in names}  # noqa: S608
    else:
        raise DataError("linked tables come as a folder with a file for each, as a DuckDB file, or as tables by name.")
    if lost := [name for name in names if name not in found]:
        raise DataError(f"there is no table for {', '.join(map(repr, lost))}. Each needs one of its name.")
    return found


def open_tables(data: object, tree: Tree) -> list[Source]:
    """The sources of all tables, refused where one lacks a column. No row is read yet."""
    sources = []
    for branch, table in zip(tree.branches, tables_of(data, tree).values(), strict=True):
        sources.append(open_source(table, branch.schema))
        require_ids(sources[-1], branch)
    return sources


def require_ids(source: Source | CountedTable, branch: Branch) -> None:
    """Refuse a table that lacks a column of an attribute, or of ids."""
    require_columns(source, branch.schema)
    if lost := [column for column in branch.columns if column not in source.columns]:
        raise DataError(said("rows.lost_id", table=source.name, column=lost[0], branch=branch.name))


def part_of(branch: int, number: int) -> int:
    """The number of a part of a table among the parts of all."""
    return branch << 20 | number


def open_tree(data: object, tree: Tree, engine: Engine | None) -> LocalTree | SparkTree:
    """Linked tables behind the engine that is asked for."""
    if any(choose_engine(engine, table) == "spark" for table in tables_of(data, tree).values()):
        from sklar.rows.executors import SparkTree

        return SparkTree(data, tree)
    return LocalTree(data, tree)


class LocalTree:
    """Linked tables in files or in memory, counted by this process in bounded memory: the joint table and its sides."""

    n_rows: int | None = None

    def __init__(self, data: object, tree: Tree) -> None:
        self._data, self._tree, self._secrets = data, tree, Secrets()
        self.reads_again = all(map(reads_again, tables_of(data, tree).values()))
        self.name, self.columns = "the tables", tuple(tree.joint.columns)
        open_tables(data, tree)

    def count(self, ask: Ask, *, progress: Progress = SILENT) -> Exact:
        """Exact answers about all people, whose number is not shown on the way."""
        del progress
        total = no_answers(ask)
        for answers in in_order(partial(count_people, ask=ask), self.people(ask)):
            total += answers
        return total

    def people(self, ask: Ask) -> Iterator[list[pl.DataFrame]]:
        """The records of all tables, those of a person together."""
        return map(list, bucketed(self._records(ask)))

    def _records(self, ask: Ask) -> Iterator[pl.DataFrame]:
        found = tables_of(self._data, self._tree)
        for number, source in enumerate(open_tables(self._data, self._tree)):
            branch, parts = self._tree.branches[number], source.parts or (source,)
            # A query may give its rows in another order each time: they are known by all that they are.
            by_content = isinstance(found[branch.name], Query)
            read = (part.batches(branch.columns) for part in parts)
            streams = (placed(rows, part_of(number, at), by_content=by_content) for at, rows in enumerate(read))
            made = partial(prepare, number=number, ask=ask, secrets=self._secrets)
            rows = merged(streams, files_at_once(parts))
            yield from records_of(rows, owner_of(branch), made, self._secrets)


def owner_of(branch: Branch) -> Person:
    """Whose rows are whose: a row of people without a key is a person, and any other without one is nobody's."""
    return Person(column=branch.key, count="people", null_ids="drop" if branch.of else "person")


def prepare(batch: pl.DataFrame, *, number: int, ask: Ask, secrets: Secrets) -> pl.DataFrame:
    """What is counted of the rows of a table, row by row, and what finds the rows that they hang on."""
    tree = tree_in(ask)
    branch, columns = tree.branches[number], [pl.Series(_TABLE, np.full(batch.height, number, dtype=np.int8))]
    for title, name in ((_ID, branch.id), (_ABOVE, branch.parent)):
        if name:
            ids = ids_of(batch.get_column(name))
            columns.append(pl.Series(title, marks_of(ids, secrets.ids)[:, 0].copy()).set(ids.is_null(), None))
    wanted = {place: index for index, (i, place) in _places(tree, ask.attributes).items() if i == number}
    valued = {place: at for at, (i, place) in _places(tree, ask.values).items() if i == number}
    for place, attribute in enumerate(branch.schema.attributes):
        column = batch.get_column(attribute.column)
        if place in valued:
            columns.append(value_column(column, attribute).alias(f"value {place}"))
        if attribute.private:
            continue
        codes = encode_column(column, attribute)
        columns.append(pl.Series(f"code {place}", codes.astype(np.int16 if attribute.n_levels < 2**15 else np.int32)))
        if wanted.get(place) in ask.inside:
            columns.append(pl.Series(f"tokens {place}", dealt(column, attribute, codes).astype(np.int16)))
        if attribute.name == branch.order and branch.course is not None:
            columns.append(pl.Series(_TIME, _times(column, codes, attribute, branch.course)))
    return pl.DataFrame(columns)


def tree_in(ask: Ask) -> Tree:
    """The linked tables that a question is about."""
    if ask.tree is None:
        raise DataError("this question is not about linked tables. Ask with their tree.")
    return ask.tree


def _none_of(number: int, ask: Ask) -> pl.DataFrame:
    """The records of no rows of a table."""
    batch = pl.DataFrame({column: [] for column in tree_in(ask).branches[number].columns})
    frame = prepare(batch, number=number, ask=ask, secrets=Secrets())
    return frame.with_columns(pl.lit(0, dtype=pl.UInt64).alias(name) for name in (*MARKS, KEY))


def _places(tree: Tree, attributes: Sequence[Attribute]) -> dict[int, tuple[int, int]]:
    """Of attributes of the joint table, their branch and their place there."""
    known = dict(zip(tree.joint.names, tree.places, strict=True))
    return {index: known[attribute.name] for index, attribute in enumerate(attributes)}


def _times(column: pl.Series, levels: NDArray[np.int32], attribute: Attribute, course: Course) -> Ints:
    """The times of a column of these levels: of the domain whatever its values are, and -1 where one is no level."""
    if column.dtype == pl.Null or column.dtype.is_nested():
        return np.full(levels.size, -1, dtype=np.int64)
    steps = np.nan_to_num(numbers_of(column, attribute)) // course.step - course.first
    return np.where(levels >= 0, np.clip(steps, 0, course.width - 1), -1).astype(np.int64)


def count_people(records: Iterable[pl.DataFrame], *, ask: Ask) -> Exact:
    """Exact answers about the people of one bucket: private."""
    return People(records, ask).count()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Combos:
    """Combinations of rows: on which row above each hangs, its rows by table (-1: none), and its parts of that row."""

    owner: Ints
    rows: Mapping[int, Ints]
    parts: Ints


class People:
    """The rows that count of the people of one bucket, table by table, those of one person or row together: private.

    `owner` says for each table on which row, of the table above it, each row hangs: ascending, and of one owner in the
    order of random keys. `read`, `matched` and `kept` are numbers of rows: those with a key, those that hang on a row
    that counts, and those that count.
    """

    def __init__(self, records: Iterable[pl.DataFrame], ask: Ask) -> None:
        self._ask, tree = ask, tree_in(ask)
        frames: dict[int, list[pl.DataFrame]] = {i: [] for i in range(len(tree.branches))}
        for frame in records:
            if frame.height:
                frames[int(frame.item(0, _TABLE))].append(frame)
        self._tree, self._above = tree, tree.above
        self.rows, self.owner = dict[int, pl.DataFrame](), dict[int, Ints]()
        self.read, self.matched, self.kept = (np.zeros(len(tree.branches), dtype=np.int64) for _ in range(3))
        for i, branch in enumerate(tree.branches):
            self._take(i, branch, pl.concat(frames[i] or [_none_of(i, ask)]))

    def __repr__(self) -> str:
        # A traceback or a debugger's log must not print codes.
        return "People(private)"

    @property
    def n_people(self) -> int:
        """How many people there are."""
        return self.rows[0].height

    def _take(self, i: int, branch: Branch, records: pl.DataFrame) -> None:
        """Match the rows of a table with those above them, and choose among them."""
        self.read[i] = self.matched[i] = records.height
        if not branch.of:
            chosen = records[choose_rows(records.select(MARKS).to_numpy(), records[KEY].to_numpy(), 1)]
            owner = np.zeros(chosen.height, dtype=np.int64)
        else:
            above, ties = self.rows[self._above[i]].with_row_index("_owner"), list(MARKS)
            if branch.parent:
                # An id that several of a person's rows have is that of the first.
                above = above.rename({_ID: _ABOVE}).unique([*MARKS, _ABOVE], keep="first", maintain_order=True)
                ties.append(_ABOVE)
            matched = records.join(above.select("_owner", *ties), on=ties, how="inner").sort("_owner", KEY)
            self.matched[i] = matched.height
            if branch.unique:
                places = {name: f"code {at}" for at, name in enumerate(branch.schema.names)} | {branch.order: _TIME}
                alike = [places[name] for name in branch.unique]
                matched = matched.unique(["_owner", *alike], keep="first", maintain_order=True)
            marks = np.stack([matched["_owner"].to_numpy(), np.zeros(matched.height)], axis=1).astype(np.uint64)
            chosen = matched[choose_rows(marks, matched[KEY].to_numpy(), branch.at_most)]
            owner = chosen["_owner"].to_numpy().astype(np.int64)
            chosen = chosen.drop("_owner")
        self.rows[i], self.owner[i], self.kept[i] = chosen, owner, chosen.height

    def count(self) -> Exact:
        """Exact answers about them, in tokens but for the values of private domains, of which each has one."""
        ask = self._ask
        if not self.n_people:
            return no_answers(ask)
        joint = self._combined(0, self.n_people)
        plain = replace(ask, sides=(), values=(), chosen=True, weighed=True)
        found = count(self._frames(joint, deal(joint.owner, joint.parts, ask.each), plain), plain)
        sides = tuple(query.count(self.entries(query.what)) for query in ask.sides)
        first = {i: rows[np.searchsorted(joint.owner, np.arange(self.n_people))] for i, rows in joint.rows.items()}
        held = count([self._values(first)] if ask.values else [], Ask(values=ask.values, chosen=True)).values
        return Exact(n_rows=self.n_people, tables=(*found.tables, *sides), values=held)

    def _combined(self, above: int, n: int) -> _Combos:
        """Combinations of one row of each table that hangs on this one, of each of its n rows."""
        below = [self._below(i) for i, own in self._above.items() if own == above]
        counts = [np.bincount(each.owner, minlength=n) for each in below]
        sizes = [np.maximum(each, 1) for each in counts]
        each_size = np.array(sizes, dtype=np.int64).reshape(len(below), n)
        whole, largest = each_size.prod(axis=0, dtype=np.float64), each_size.max(axis=0, initial=1)
        all_of = whole <= _COMBINED
        number = np.where(all_of, whole, largest * np.maximum(_COMBINED // largest, 1)).astype(np.int64)
        owner = np.repeat(np.arange(n), number)
        at = np.arange(owner.size) - (np.cumsum(number) - number)[owner]
        rows, parts, stride = dict[int, Ints](), np.ones_like(at), np.ones_like(at)
        for turn, (each, times, size) in enumerate(zip(below, counts, sizes, strict=True)):
            own = size[owner]
            # All combinations; or each row in turn, a further step ahead of the others in every round.
            place = np.where(all_of[owner], at // stride, at + turn * (at // own)) % own
            stride = np.minimum(stride * own, _COMBINED + 1)
            # The last is that of none.
            row = np.where(times[owner] == 0, -1, (np.cumsum(times) - times)[owner] + place)
            rows |= {table: np.append(places, -1)[row] for table, places in each.rows.items()}
            parts *= np.append(each.parts, 1)[row]
        return _Combos(owner=owner, rows={above: owner, **rows}, parts=parts)

    def _below(self, i: int) -> _Combos:
        """The rows of a table, each in all combinations with rows below it, with the row above as owner."""
        found = self._combined(i, self.owner[i].size)
        # Every row has the same parts, however many combinations it is in.
        parts = deal(found.owner, found.parts, _PARTS) if i in self._above.values() else found.parts
        return _Combos(owner=self.owner[i][found.owner], rows=found.rows, parts=parts)

    def _frames(self, joint: _Combos, tokens: Ints, ask: Ask) -> Iterator[pl.DataFrame]:
        """Codes of the joint table, and tokens, of some combinations at a time."""
        known = _places(self._tree, ask.attributes)
        on = {index: known[index][0] if known[index][1] >= 0 else self._above[known[index][0]] for index in ask.used}
        codes = {index: self._codes(*known[index], ask.attributes[index]) for index in ask.used}
        ways = {index: self._ways(*known[index]) for index in ask.used if index in ask.inside}
        for start in range(0, tokens.size, _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            columns = {"weight": tokens[some]}
            columns |= {f"code {index}": own[joint.rows[on[index]][some]] for index, own in codes.items()}
            # At most as many as there are, and half of one rounds down: whole, and of a person's no more than all.
            dealt_in = {index: tokens[some] * own[joint.rows[on[index]][some]] for index, own in ways.items()}
            columns |= {f"tokens {index}": (own + TOKENS // 2 - 1) // TOKENS for index, own in dealt_in.items()}
            yield pl.DataFrame(columns)

    def _number(self, i: int) -> Ints:
        """How many rows of a table hang on each row of the one above it."""
        above = self._above[i]
        return np.bincount(self.owner[i], minlength=self.owner[above].size)

    def _codes(self, i: int, place: int, attribute: Attribute) -> Ints:
        """The codes of an attribute of the joint table, by the rows that it is of; the last is that of no row."""
        none = none_code(attribute)
        if place < 0:
            own = np.searchsorted(np.array(self._tree.branches[i].bins), self._number(i), side="right") - 1
        else:
            own = self.rows[i][f"code {place}"].to_numpy().astype(np.int64)
            own = own if none is None else own + (own >= none)
        return np.append(own, NO_CELL if none is None else none)

    def _ways(self, i: int, place: int) -> Ints:
        """The share, in `TOKENS`, of its bin that lies below each number; none of no row."""
        if place >= 0:
            return np.append(self.rows[i][f"tokens {place}"].to_numpy().astype(np.int64), 0)
        number, bins = self._number(i), np.array(self._tree.branches[i].bins)
        low = np.searchsorted(bins, number, side="right") - 1
        return np.append(TOKENS * (number - bins[low]) // (bins[low + 1] - bins[low]), 0)

    def _values(self, rows: Mapping[int, Ints]) -> pl.DataFrame:
        """The values of private domains of one row of each table, of each person."""
        places = _places(self._tree, self._ask.values)
        held = {number: self.rows[i][f"value {place}"] for number, (i, place) in places.items()}
        # One more, null: of no row.
        more = {number: own.append(own.clear(1)) for number, own in held.items()}
        return pl.DataFrame({f"value {number}": own[rows[places[number][0]].tolist()] for number, own in more.items()})

    def entries(self, what: str) -> list[Entries]:
        """Who gives which tokens to which cells of the tables of a side."""
        tokens = self._ask.each
        side = next(side for side in sides_of(self._tree) if side.what == what)
        i = self._tree.branches.index(side.of)
        owner, number, course = self.owner[i], self._number(i), side.of.course
        if side.kind == "number":
            return [(number, np.full(number.size, tokens))]
        places = {axis for axes, _ in side.tables for axis in axes if axis >= 0}
        codes = {place: self.rows[i][f"code {place}"].to_numpy().astype(np.int64) for place in places}
        if side.kind == "two":
            begin, one = (np.cumsum(number) - number)[owner], np.flatnonzero(number[owner] > 1)
            two = begin[one] + (one - begin[one] + 1) % number[owner[one]]
            given = deal(owner[one], np.ones_like(one), tokens)
            pairs = ((codes[place][one], codes[place][two], shape[0]) for (place, _), shape in side.tables)
            return [(_triangle(*pair), given) for pair in pairs]
        # In order of time, those of one time by their keys.
        times = self.rows[i][_TIME].to_numpy()
        timed = np.flatnonzero(times >= 0)
        timed = timed[np.lexsort((times[timed], owner[timed]))]
        first = np.diff(owner[timed], prepend=-1) > 0
        if side.kind == "first":
            rows = timed[first]
            return [(codes[place][rows], np.full(rows.size, tokens)) for (place,), _ in side.tables]
        later = np.flatnonzero(~first)
        before, after = timed[later - 1], timed[later]
        given = deal(owner[after], np.ones_like(after), tokens)
        bins, gaps = np.array(side.of.bins), np.array(course.gaps if course else ())
        axes = {
            # Whoever makes a step has two rows.
            NUMBER: np.searchsorted(bins, number[owner[after]], side="right") - 3,
            GAP: np.searchsorted(gaps, times[after] - times[before], side="right") - 1,
        }
        sides = (zip(own, (before, after), strict=True) for own, _ in side.tables)
        steps = ([codes[axis][rows] if axis >= 0 else axes[axis] for axis, rows in own] for own in sides)
        return [
            (np.where((low >= 0) & (high >= 0), low * shape[1] + high, NO_CELL), given)
            for (low, high), (_, shape) in zip(steps, side.tables, strict=True)
        ]


def _triangle(one: Ints, other: Ints, size: int) -> Ints:
    """Where two levels stand among all pairs of levels low <= high, in the order of `np.triu_indices`.

    >>> _triangle(np.array([0, 2, 1, 2]), np.array([1, 0, 1, 2]), 3).tolist()
    [1, 2, 3, 5]
    """
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.where(low < 0, NO_CELL, low * size - low * (low - 1) // 2 + high - low)
