"""Columns that several attributes hold, and codes of which the first characters are held: there and back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sklar
from sklar.answer.predicate import QueryError
from sklar.custodian import review
from sklar.draw.decode import Decoder, record_schema
from sklar.errors import SchemaError
from sklar.files.write import to_library
from sklar.public.rules import violating
from sklar.public.schema import Schema
from sklar.rows.encode import coder, encode, value_column
from sklar.rows.read import open_source
from tests.conftest import refuses

FORMAT = "%d.%m.%Y %H:%M"


def parts(date: str = 'low = "1969-01-01"\nhigh = "1971-01-01"\nbins = 24', common: str = 'missing = "?"') -> str:
    """The entries of a column `at`."""
    entries = {"date": date, "time": 'low = "00:00"\nhigh = "24:00"\nbins = 24\nstep = 60', "weekday": ""}
    return "\n".join(
        f'[attributes."at.{kind}"]\ntype = "{kind}"\npart_of = "at"\n{common}\n{own}\n' for kind, own in entries.items()
    )


ZIP = '[attributes.zip]\ntype = "categorical"\nprefix = 2\nlength = 5\nmissing = ""\n'
SCHEMA = Schema.from_toml(parts() + ZIP + '[attributes.late]\ntype = "boolean"\n')


def table(rows: int = 4_000, seed: int = 0) -> pl.DataFrame:
    """Mornings that are late on Mondays, and codes as numbers that lost their zeros."""
    rng = np.random.default_rng(seed)
    days, minutes = rng.integers(-365, 365, rows), rng.integers(6 * 60, 12 * 60, rows)
    moments = pl.Series((days * 1_440 + minutes) * 60_000_000).cast(pl.Datetime("us"))
    late = ((days + 3) % 7 == 0) & (rng.random(rows) < 0.9)
    frame = pl.DataFrame({"at": moments, "zip": rng.choice([2139, 90210, 94305], rows), "late": late})
    return frame.with_columns(at=pl.when(pl.int_range(rows) % 10 > 0).then("at"))


def share(truths: pl.Series) -> float:
    return float(truths.to_numpy().mean())


def test_a_schema_comes_back_from_its_text_and_columns_from_their_parts() -> None:
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    assert dict(SCHEMA.columns) == {"at": (0, 1, 2), "zip": (3,), "late": (4,)}
    assert "values" not in SCHEMA.to_dict()["attributes"]["zip"]
    assert SCHEMA.attributes[3].levels[:2] + SCHEMA.attributes[3].levels[-2:] == ("00", "01", "(missing)", "other")
    kinds = [(each.name, each.kind, each.step) for each in SCHEMA.released]
    assert kinds == [("at", "datetime", 60), ("zip", "categorical", None), ("late", "boolean", None)]
    assert record_schema(SCHEMA)["at"] == pl.Datetime("us")
    entries = SCHEMA.to_dict()["attributes"]
    dates = Schema.from_dict({"attributes": {name: entries[name] for name in ("at.date", "at.weekday")}})
    assert [(each.name, each.kind) for each in dates.released] == [("at", "date")]


@pytest.mark.parametrize("written", [FORMAT, None])
def test_texts_and_moments_have_the_same_codes(written: str | None) -> None:
    frame, shown = table(900), written or "%Y-%m-%d %H:%M:%S"
    schema = SCHEMA if written is None else Schema.from_toml(parts(common=f'missing = "?"\nformat = "{written}"') + ZIP)
    texts = frame.select(pl.col("at").dt.to_string(shown).fill_null("?"), pl.col("zip").cast(pl.String).str.zfill(5))
    codes = encode(frame, SCHEMA)[:4]
    assert encode(texts, schema if written else Schema.from_toml(parts() + ZIP)).tolist() == codes.tolist()
    moments = frame["at"].to_list()
    at = next(i for i, moment in enumerate(moments) if moment is not None and moment < dt.datetime(1970, 1, 1))
    named = [each.levels[code] for each, code in zip(SCHEMA.attributes, codes[:, at], strict=False)]
    assert named[1].startswith(f"[{moments[at]:%H}:00:00")
    assert named[2] == f"{moments[at]:%A}"
    assert {each.levels[-1] for each in SCHEMA.attributes[:3]} == {"?"}
    assert all((codes[place] == SCHEMA.attributes[place].missing_code).sum() == 90 for place in (0, 1, 2))
    assert [coder(SCHEMA.attributes[3])(text) for text in ("02139", "2139", 2139, "02139-4307", "02")] == [2] * 5
    assert [coder(SCHEMA.attributes[3])(text) for text in ("", None, "K1A 0B1", "x")] == [100, 100, 101, 101]


@pytest.mark.parametrize("typed", [True, False])
def test_the_codes_of_a_row_are_its_own(typed: bool) -> None:
    """What sensitivity rests on: a row stands in one cell of each table of a part, wherever the other rows stand."""
    frame = table(300, seed=4) if typed else table(300, seed=4).cast(pl.String)
    alone = np.concatenate([encode(frame[row : row + 1], SCHEMA) for row in range(300)], axis=1)
    assert encode(frame, SCHEMA).tolist() == alone.tolist()
    assert (alone >= 0).all()


@given(
    edges=st.lists(st.integers(-900, 900), min_size=2, max_size=9, unique=True).map(sorted),
    points=st.sets(st.integers(-900, 900), max_size=3),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_what_was_joined_has_its_parts(edges: list[int], points: set[int], seed: int) -> None:
    """Whatever the bins of dates, also narrower than a week, and whatever points: codes come back that rules allow."""
    axis = SCHEMA.attributes[0].axis
    own = f"edges = {[axis.text(edge) for edge in edges]}\npoints = {[axis.text(point) for point in sorted(points)]}"
    try:
        schema = Schema.from_toml(parts(own if points else own.partition("\n")[0]))
    except SchemaError:
        # Less than a week, points beyond the edges, or nothing but points in a bin.
        assume(False)
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, 300) for size in schema.sizes]).astype(np.int64)
    codes = codes[:, ~violating(codes, schema.allowed)]
    frame = Decoder(schema).decode(codes, rng)
    assert encode(frame, schema).tolist() == codes.tolist()
    assert frame["at"].drop_nulls().dt.second().sum() == 0


def test_a_day_has_one_weekday_and_what_is_missing_is_missing_in_all_parts() -> None:
    schema = Schema.from_toml(parts('low = "2024-01-01"\nhigh = "2024-01-15"\nbins = 14'))
    allowed = {pair: free.sum() for pair, free in schema.allowed.items()}
    assert allowed == {(0, 1): 14 * 24 + 1, (0, 2): 14 + 1, (1, 2): 24 * 7 + 1}
    turned = Schema.from_dict({"attributes": dict(reversed(schema.to_dict()["attributes"].items()))})
    assert np.array_equal(turned.allowed[0, 2], schema.allowed[0, 2].T)
    assert Schema.from_toml(parts(common="")).allowed == {}


REFUSED: dict[str, tuple[str, Callable[[str], str]]] = {
    "at.date": ("column 'at': a part with type = 'date' says its day. Add it.",
        lambda text: "[" + text.split("[", 2)[2]),
    "twice": ("column 'at': it must have one part of each type, got type = 'time' twice. Remove one.",
        lambda text: text + '[attributes.b]\ntype = "time"\npart_of = "at"\nmissing = "?"\nedges = ["0:00", "24:00"]'),
    "both": ("column 'at': it must be one attribute, or have parts, not both. Remove one.",
        lambda text: text + '[attributes.at]\ntype = "boolean"'),
    "missing": ("column 'at': its parts must have one missing text and one format, and its date alone an output.",
        lambda text: text.replace('missing = "?"', "", 1)),
    "output": ("column 'at': output 'date32' does not hold a datetime; use one of string, timestamp.",
        lambda text: text.replace('missing = "?"', 'missing = "?"\noutput = "date32"', 1)),
    "format": (
        "column 'at': format must tell a day, a month, a year and one of 24 hours, in the letters of strptime, got "
        "'%d.%m.%Y'. Write '%d.%m.%Y %H:%M'.",
        lambda text: (
            text.replace('missing = "?"', 'format = "%d.%m.%Y"')
            .replace("step = 60", "step = 86400")
            .replace("24\nstep", "1\nstep")
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_parts_that_contradict_one_another_are_refused(what: str) -> None:
    message, change = REFUSED[what]
    with pytest.raises(SchemaError) as error:
        Schema.from_toml(change(parts()))
    assert str(error.value) == message


def test_whoever_names_the_column_is_told_its_parts() -> None:
    told = "column 'at' is measured in parts. Name one of them: at.date, at.time, at.weekday."
    refuses(told, SCHEMA.attribute, "at", error=SchemaError)
    model = sklar.fit(table(), SCHEMA, epsilon=5.0)
    refuses(told, model.query, "at >= '1970-01-01'", error=QueryError)


def test_a_release_keeps_hours_and_weekdays_and_is_read_wherever_a_table_is(tmp_path: Path) -> None:
    """Noise at epsilon 30 is a few rows of 4,000: no share here is off by .1 once in a million runs."""
    frame = table()
    frame.write_csv(tmp_path / "t.csv", null_value="?")
    private = SCHEMA.to_toml().replace(
        f"edges = {SCHEMA.to_dict()['attributes']['at.date']['edges']}".replace("'", '"'), BOUNDS
    )
    model = sklar.fit(tmp_path / "t.csv", Schema.from_toml(private), epsilon=30.0)
    assert model.schema.attribute("at.date").domain == "found"
    model.save(tmp_path / "m.sklar")
    drawn = sklar.load(tmp_path / "m.sklar").sample(4_000, seed=1)
    assert drawn.columns == ["at", "zip", "late"]
    assert drawn["at"].dt.second().drop_nulls().sum() == 0
    assert share(drawn["at"].drop_nulls().dt.hour().is_between(6, 11)) > 0.9
    assert share(drawn["late"].filter(drawn["at"].dt.weekday() == 1)) > 0.6
    assert share(drawn["late"].filter(drawn["at"].dt.weekday() == 3)) < 0.2
    assert abs(drawn["at"].null_count() - 400) < 100
    assert set(drawn["zip"].unique()) >= {"02", "90", "94"}
    lines = "\n".join(model.summary())
    assert "'zip': The first 2 characters of each code; the rest is left out." in lines
    assert "'at.time': Part of column 'at'." in lines
    # Questions, conditions and rows to fill name parts, or the column.
    mondays = model.query("at.weekday = 'Monday' and late = true").estimate
    assert mondays is not None
    assert abs(mondays - 460) < 150
    given = model.sample(200, seed=2, given="at.time >= '07:30' and at.time < '08:00' and \"at.weekday\" = 'Friday'")
    assert (given["at"].dt.weekday() == 5).all()
    assert given["at"].dt.hour().unique().to_list() == [7]
    assert share(given["at"].dt.minute() >= 30) == 1
    filled = model.complete(pl.DataFrame({"at": [dt.datetime(1970, 1, 5, 7, 7), None], "zip": [None, "94305"]}), seed=3)
    assert filled["at"][0] == dt.datetime(1970, 1, 5, 7, 7)
    assert filled["at"][1] is not None
    evaluation = sklar.evaluate(frame, drawn, model.schema)
    (code,) = (each for each in evaluation.columns if each.name == "zip")
    assert "compared are the first 2 characters of each code: the rest is left out" in [
        each.words for each in code.reasons
    ]
    assert code.verdict == "with care"
    assert evaluation.left_out == ()
    assert {each.name for each in evaluation.columns} == set(SCHEMA.names)
    assert all(each.tv < 0.1 for each in evaluation.columns)
    assert to_library(drawn, "arrow", model.schema).schema.names == drawn.columns
    assert str(to_library(drawn, "pandas", model.schema)["at"].dtype).startswith("datetime64")
    check = "\n".join(sklar.check(SCHEMA, tmp_path / "t.csv").lines())
    assert "'zip': The first 2 characters of each code; the rest is left out." in check


BOUNDS = 'domain = "private"\nlow = "1900-01-01"\nhigh = "2100-01-01"\nbins = 20'


def test_prefixes_are_searched_for_where_they_are_not_listed() -> None:
    found = Schema.from_toml('[attributes.icd]\ntype = "categorical"\nprefix = 3\ndomain = "private"\n').attributes[0]
    assert value_column(pl.Series(["I25.1", "I25.9", "J45", "", None]), found).to_list() == [
        "I25",
        "I25",
        "J45",
        None,
        None,
    ]
    listed = Schema.from_toml('[attributes.icd]\ntype = "categorical"\nprefix = 1\nvalues = ["I", "J"]\nmissing = "I9"')
    assert encode(pl.DataFrame({"icd": ["I25.1", "J45", "I9", "X"]}), listed).tolist() == [[0, 1, 2, 2]]


def test_a_draft_is_reviewed_column_by_column(tmp_path: Path) -> None:
    table().write_parquet(tmp_path / "t.parquet")
    drafted = sklar.draft(tmp_path / "t.parquet")
    text = drafted.to_toml()
    assert "its time of day and weekday are measured too" in text
    assert "the first 2 digits of each code: all are public, so no search is needed; the rest is left out" not in text
    (question,) = (each for each in review.questions(text, drafted) if each.name == "at.date")
    assert any("date and time" in line for line in question.private)
    assert [choice.key for choice in question.choices] == ["a", "b", "e", "x"]
    assert list(Schema.from_toml(review.answer(text, "at.date", None)).columns) == ["zip", "late"]
    accepted = Schema.from_toml(review.accept_all(text))
    assert not accepted.not_reviewed
    assert accepted.attribute("at.date").reviewed == "unread"


def test_files_lack_the_column_and_not_its_parts(tmp_path: Path) -> None:
    table(9).drop("at").write_csv(tmp_path / "t.csv")
    refuses(r"has no column for 'at'\.", sklar.fit, tmp_path / "t.csv", SCHEMA, epsilon=1.0, error=sklar.DataError)
    assert open_source(table(9)).columns == ("at", "zip", "late")
