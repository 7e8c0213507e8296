"""Rows by person: whose they are, how many count, with which chances, and what is left behind (nothing)."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaincc

from sklar.errors import DataError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.public.settings import NullIds, Person
from sklar.release import measure
from sklar.rows import bounded
from sklar.rows.bounded import Secrets, ids_of, marks_of, placed, records_of
from sklar.rows.count import ask_all
from sklar.rows.engines import open_table
from tests.rows.test_count import Told


def schema(most: int | None = None) -> Schema:
    how = 'count = "people"' if most is None else f'count = "rows"\nrows_per_person = {most}'
    wards = '[attributes.ward]\ntype = "categorical"\nvalues = ["A", "B", "C"]\n'
    ages = '[attributes.age]\ntype = "integer"\nedges = [0, 20, 40, 60]\n'
    return Schema.from_toml(f'[table]\nname = "v"\nperson = "id"\n{how}\n{wards}{ages}')


def visits(people: int = 300, seed: int = 0) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    ids = np.repeat(np.arange(people), generator.integers(1, 12, people))
    generator.shuffle(ids)
    return pl.DataFrame(
        {
            "id": ids,
            "ward": np.array(["A", "B", "C", "D", ""])[generator.integers(0, 5, ids.size)],
            "age": generator.integers(-5, 70, ids.size),
        }
    )


@pytest.fixture(params=[1 << 26, 0], ids=["in memory", "in files"])
def held_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many bytes of records are held."""
    monkeypatch.setattr(bounded, "HELD_BYTES", request.param)


def numbered(ids: pl.Series, size: int = 100) -> list[pl.DataFrame]:
    """Rows with their numbers and ids, in batches."""
    return list(pl.DataFrame([pl.Series("row", np.arange(len(ids))), ids.alias("id")]).iter_slices(size))


def chosen_of(ids: pl.Series, person: Person, *, batch: int = 100) -> list[int]:
    """The places of the rows that are chosen, in batches."""
    records = records_of(placed(numbered(ids, batch), 0), person, lambda frame: frame, Secrets())
    return [row for found in bounded.choose_here(records, person.rows_per_person) for row in found["row"]]


def gathered(
    rows: pl.DataFrame, person: Person, secrets: Secrets, *, parts: int = 4, buckets: int = 3, by_content: bool = False
) -> pl.DataFrame:
    """What is chosen of rows in this many parts that meet in buckets; the last part comes first."""
    meeting: dict[int, list[pl.DataFrame]] = {}
    for number, part in reversed(list(enumerate(rows.iter_slices(-(-rows.height // parts))))):
        order = np.random.default_rng().permutation(part.height) if by_content else np.arange(part.height)
        batches = part[order].iter_slices(1000)
        given = placed(batches, number, by_content=by_content)
        sent = bounded.reduced(records_of(given, person, lambda frame: frame, secrets), person.rows_per_person)
        for records in sent:
            for bucket, own in bounded.by_bucket(records, buckets):
                meeting.setdefault(bucket, []).append(own)
    assert set(meeting) <= set(range(buckets))
    found = [bounded.choose(records, person.rows_per_person) for records in meeting.values()]
    return pl.concat([each for each in found if each is not None])


@pytest.mark.usefixtures("held_bytes")
@pytest.mark.parametrize("most", [1, 4, 100])
def test_each_person_counts_with_at_most_so_many_rows(most: int) -> None:
    rows = visits()
    person = Person(column="id", count="rows", rows_per_person=most)
    chosen = chosen_of(rows["id"], person)
    assert len(set(chosen)) == len(chosen)
    found, every = Counter(rows["id"][chosen].to_list()), Counter(rows["id"].to_list())
    assert found == {one: min(times, most) for one, times in every.items()}


def evenness(chosen: Iterable[tuple[int, int]], ways: dict[tuple[int, int], int]) -> float:
    """The p-value of a chi-square over the pairs of rows that people were chosen with, each in so many of ten ways.

    Of the chosen rows the person and which of the person's rows it is are given.
    """
    own: dict[int, list[int]] = {}
    for person, row in chosen:
        own.setdefault(person, []).append(row)
    found = Counter(tuple(sorted(pair)) for pair in own.values())
    assert set(found) <= set(ways)
    expected = {pair: len(own) * times / 10 for pair, times in ways.items()}
    statistic = sum((found[pair] - times) ** 2 / times for pair, times in expected.items())
    return float(gammaincc((len(ways) - 1) / 2, statistic / 2))


@pytest.mark.usefixtures("held_bytes")
def test_every_choice_has_the_same_chance() -> None:
    """Of five rows of each of 6,000 people two are chosen, in ten ways. False-failure rate: 1e-7 each."""
    ids = pl.Series(np.tile(np.arange(6_000), 5))
    chosen = chosen_of(ids, Person(column="id", count="rows", rows_per_person=2), batch=5_000)
    ways = dict.fromkeys(itertools.combinations(range(5), 2), 1)
    assert evenness(((row % 6_000, row // 6_000) for row in chosen), ways) >= 1e-7


@pytest.mark.usefixtures("held_bytes")
@pytest.mark.parametrize("null_ids", ["person", "drop"])
def test_a_row_without_an_id_is_a_person_of_its_own_or_left_out(null_ids: NullIds) -> None:
    ids = pl.Series(["a", None, "a", "", None, "b", "a", ""])
    chosen = chosen_of(ids, Person(column="id", count="people", null_ids=null_ids), batch=3)
    found = Counter(ids[row] or None for row in chosen)
    assert found == ({"a": 1, "b": 1, None: 4} if null_ids == "person" else {"a": 1, "b": 1})


THREE = "12345678-1234-5678-1234-567812345678", "22345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize("column", [
    pl.Series([1, 2, 1, None]), pl.Series([1, 2, 1, None], dtype=pl.UInt64), pl.Series([1.0, 2.5, 1.0, float("nan")]),
    pl.Series(["x", "y" * 1000, "x", ""]), pl.Series([b"\xff", b"\xfe", b"\xff", None]),
    pl.Series(["x", "y", "x", None], dtype=pl.Categorical),
    pl.Series([Decimal("1.50"), Decimal("1.5001"), Decimal("1.50"), None]),
    pl.Series([dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2020, 1, 1), None]),
    pl.Series([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2), dt.datetime(2020, 1, 1), None]),
    pl.Series([True, False, True, None]), pl.Series([7, "x", 7.0, None], dtype=pl.Object),
    pl.Series([uuid.UUID(THREE[0]), uuid.UUID(THREE[1]), THREE[0], float("nan")], dtype=pl.Object),
], ids=lambda column: str(column.dtype))  # fmt: skip
def test_ids_may_be_of_any_type(column: pl.Series) -> None:
    ids = ids_of(column)
    assert ids.dtype == pl.Binary
    assert ids.is_null().to_list() == [False, False, False, True]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize("column", [pl.Series([[1], [2], None]), pl.Series([[1], {2}, None], dtype=pl.Object)])
def test_ids_without_a_text_are_one_person(column: pl.Series) -> None:
    ids = ids_of(column)
    assert ids[0] == ids[1] is not None
    assert ids[2] is None
    assert ids_of(pl.Series([None, None])).null_count() == 2


def test_one_id_in_several_types_is_one_person() -> None:
    columns = [pl.Series([7]), pl.Series([7.0]), pl.Series(["7"]), pl.Series([Decimal("7.00")]), pl.Series([b"7"])]
    assert {ids_of(column)[0] for column in columns} == {b"7"}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=20))
def test_marks_are_equal_where_ids_are(values: list[bytes]) -> None:
    marks = marks_of(pl.Series(values, dtype=pl.Binary), Secrets().ids)
    for (one, first), (other, second) in itertools.combinations(zip(values, marks.tolist(), strict=True), 2):
        assert (one == other) == (first == second)


def test_marks_are_keyed_anew_in_every_run() -> None:
    ids = pl.Series([b"a", b"b"])
    assert not np.array_equal(marks_of(ids, Secrets().ids), marks_of(ids, Secrets().ids))
    # As far as blocks go: what an id begins with, and zeros after it, are another id's mark.
    long = pl.Series([b"", b"\0", b"a" * 8, b"a" * 9, b"a" * 24, b"a" * 25, b"a" * 24 + b"\0"])
    assert len({tuple(mark) for mark in marks_of(long, Secrets().ids).tolist()}) == len(long)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_files_have_no_name_and_no_reader_and_hold_nothing_readable(scratch: Path) -> None:
    secret = "a text that nobody may read"
    rows, person = placed(numbered(pl.Series(range(500)), 500), 0), Person(column="id", count="people")
    (records,) = records_of(rows, person, lambda _: pl.DataFrame({"row": [secret] * 500}), Secrets())
    with bounded.Buckets() as buckets:
        buckets.add([records[:300], records[300:]])
        assert list(scratch.iterdir()) == []
        found = pl.concat([piece for bucket in range(bounded.BUCKETS) for piece in buckets.read(bucket)])
        assert sorted(found["_mark_0"]) == sorted(records["_mark_0"])
        assert (found["row"] == secret).all()
        held = buckets._files[0]
        assert os.fstat(held.fileno()).st_mode & 0o777 == 0o600
        held.seek(0)
        content = held.read()
        assert len(content) > 100
        assert b"nobody" not in content
        assert b"ARROW" not in content
    assert held.closed


KILLED = """
import os, signal, sys, tempfile
import numpy as np, polars as pl
from sklar.public.settings import Person
from sklar.rows import bounded as people
tempfile.tempdir, people.HELD_BYTES = sys.argv[1], 0
frame = pl.DataFrame({"row": np.arange(1000), "id": np.arange(1000) % 50})
person = Person(column="id", count="people")
rows = people.placed(frame.iter_slices(100), 0)
records = people.records_of(rows, person, lambda batch: batch, people.Secrets())
next(people.choose_here(records, 1))
print("running", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("running\n", -9), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_room_for_temporary_files_is_one_sentence(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch.rmdir()
    monkeypatch.setattr(bounded, "HELD_BYTES", 0)
    with pytest.raises(DataError, match=r"no room or no permission. Set TMPDIR to a folder on a disk"):
        chosen_of(pl.Series(np.arange(10)), Person(column="id", count="people"))


def test_a_table_without_the_column_of_ids_is_refused() -> None:
    with pytest.raises(DataError, match=r"the table has no column 'id', which .table. names as the person's"):
        open_table(visits().drop("id"), schema())


def test_a_checkpoint_does_not_go_with_people(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a checkpoint goes with rows, and .table. names a person"):
        open_table(visits(), schema(), checkpoint=tmp_path / "c")


@pytest.mark.parametrize("most", [None, 4])
def test_what_leaves_is_of_the_rows_that_count_and_progress_tells_none_of_them(most: int | None) -> None:
    rows, told = visits(), Told()
    exact = measure(rows, schema(most), Budget(epsilon=1e9), progress=told)
    assert (set(told.totals), told.steps) == ({None}, [])
    times = Counter(rows["id"].to_list()).values()
    counted = sum(min(own, most or 1) for own in times)
    total, one_way = (exact.blocks[0].values.tolist(), exact.blocks[1].values) if most else ([], exact.blocks[0].values)
    assert [exact.n_rows, *total] == ([None, counted] if most else [counted])
    assert exact.certificate.public_rows == (len(times) if most is None else None)
    # Every row has an age; some wards stand in no cell.
    assert one_way[3:].sum() == counted > one_way[:3].sum()


def test_private_domains_are_found_among_the_rows_that_count() -> None:
    """Of a value that one person has in a thousand rows, one row counts: no threshold lets it out."""
    rows = pl.DataFrame({"id": ["odd"] * 3000 + [str(n) for n in range(3000)], "ward": ["rare"] * 3000 + ["A"] * 3000})
    plain = Schema.from_toml('[attributes.ward]\ntype = "categorical"\ndomain = "private"\nat_most = 5\n')
    described = replace(plain, person=Person(column="id", count="people"))
    assert measure(rows, described, Budget(epsilon=1.0)).schema.attributes[0].values == ("A",)
    assert measure(rows, plain, Budget(epsilon=1.0)).schema.attributes[0].values == ("A", "rare")


def test_a_person_has_at_most_so_many_rows_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.DataFrame({"row": range(180), "id": [str(n % 20) for n in range(180)]})
    two, secrets = Person(column="id", count="rows", rows_per_person=2), Secrets()
    first = gathered(rows, two, secrets)
    assert Counter(Counter(rows["id"][row] for row in first["row"]).values()) == {2: 20}
    # The same again, also where records are sent in smaller pieces.
    assert sorted(gathered(rows, two, secrets, buckets=1)["row"]) == sorted(first["row"])
    assert sorted(gathered(rows, two, Secrets())["row"]) != sorted(first["row"])
    monkeypatch.setattr(bounded, "HELD_BYTES", 100)
    assert sorted(gathered(rows, two, secrets)["row"]) == sorted(first["row"])


def test_rows_in_another_order_are_chosen_alike_and_with_the_same_chances() -> None:
    """Five rows a person, of which two are equal, two chosen, known by their content. False-failure rate: 1e-7."""
    people, secrets = 6_000, Secrets()
    # Rows 3 and 4 of a person are equal: together they are chosen as often as two rows.
    rows = pl.DataFrame({"content": np.repeat([0, 1, 2, 3, 3], people), "id": np.tile(np.arange(people), 5)})
    rows = rows.sort("id").with_columns(own=pl.col("id"))[["content", "own", "id"]]
    person = Person(column="id", count="rows", rows_per_person=2)
    first, again = (sorted(gathered(rows, person, secrets, by_content=True).rows()) for _ in range(2))
    assert first == again
    ways = {(0, 1): 1, (0, 2): 1, (1, 2): 1, (0, 3): 2, (1, 3): 2, (2, 3): 2, (3, 3): 1}
    assert evenness(((one, kind) for kind, one in first), ways) >= 1e-7


def test_the_same_rows_of_a_person_are_counted_in_every_pass() -> None:
    """A hundred people with nine rows each, whose values all differ: another choice would change counts."""
    described = schema(2)
    rows = pl.DataFrame({"id": np.repeat(np.arange(100), 9), "ward": ["A", "B", "C"] * 300, "age": np.arange(900) % 60})
    table = open_table(rows, described)
    first, again = (table.count(ask_all(described)) for _ in range(2))
    assert np.array_equal(first.pairs, again.pairs)
    assert not np.array_equal(first.pairs, open_table(rows, described).count(ask_all(described)).pairs)


def test_secrets_are_not_shown() -> None:
    assert "b'" not in repr(Secrets())
