"""The custodian's report: complete, marked private wherever one looks, with charts that lose nothing."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from markupsafe import escape

from sklar.answer.report import svg
from sklar.answer.report.render import clean
from sklar.answer.report.svg import axis_scale, tick_text
from sklar.cli import cli
from sklar.custodian.evaluate import (
    NOTICE,
    Evaluation,
    answer,
    choose_triples,
    compare,
    draw_numbers,
    evaluate,
    together,
    view,
)
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import Reading
from tests.answer.report.html import EVIL, check_escaped, read
from tests.custodian.evaluate.tables import SCHEMA, dummies, records
from tests.custodian.evaluate.test_raw import held, on_axis


def reported(*tables: Any, **settings: Any) -> tuple[Evaluation, str]:
    """An evaluation and its report."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "PRIVATE.html"
        return evaluate(*tables, report=path, **settings), path.read_text(encoding="utf-8")


def test_every_part_is_there_and_says_private() -> None:
    pytest.importorskip("sklearn")
    found, document = reported(records(150), records(120, seed=2), SCHEMA, target="a", test=records(60, seed=3))
    text = " ".join(read(document).text)
    for part in (
        *("worst things", "Every column: what to use, and what not", "Quantiles of numbers"),
        *("How columns go together", "Mean total variation distance of tables"),
        *("Trained on synthetic rows, tested on real ones", "Synthetic counts are scaled", "real test rows; 0:"),
    ):
        assert part in text
    assert "<title>PRIVATE" in document
    assert document.count("PRIVATE: do not publish") == document.count("<section")
    assert document.count(escape(NOTICE)) == 2
    # Fixed on screen, and in the margin of every printed page.
    assert ".banner.top{position:sticky" in document
    assert '@page{@top-center{content:"PRIVATE · not for publication"' in document
    assert found.distances in text
    for attribute in SCHEMA.attributes:
        what = "Numbers" if attribute.kind == "integer" else "Levels"
        assert f"<title>{what} of {attribute.name}" in document


def test_what_is_shown_does_not_print_its_counts_and_dummies_are_drawn_by_levels() -> None:
    real, synthetic = (answer(records(60, seed), SCHEMA, choose_triples(SCHEMA)) for seed in (0, 2))
    shown = view(compare(real, synthetic), real, synthetic)
    for each in (shown, shown["charts"][0]):
        assert repr(each) == "Hidden(private)"
    _, document = reported(records(300), dummies(300), SCHEMA)
    read(document)
    assert "Valid records" in document
    assert "<title>Levels of c" in document
    assert "Quantiles of numbers" not in document


@pytest.mark.parametrize("evil", EVIL)
def test_names_values_and_texts_cannot_break_out(evil: str) -> None:
    pytest.importorskip("sklearn")
    words = Attribute(name=evil, kind="categorical", values=(evil, "b"))
    schema = Schema(name=evil, attributes=(words, Attribute(name="x", kind="integer", edges=(0, 10))))
    table = pl.DataFrame({evil: [evil, "b"] * 30, "x": ["1", evil, "2"] * 20})
    _, document = reported(table, table, schema, target=evil, test=table)
    check_escaped(document, evil)
    # A control: it is in the heading, the tables, the pictures and the scores.
    assert document.count(str(escape(clean(evil)))) > 12


@pytest.mark.parametrize("name", ["PRIVATE.html", "report.html"])
def test_the_command_writes_for_its_owner_and_warns_of_a_name(tmp_path: Path, name: str) -> None:
    real, schema, out = (tmp_path / each for each in ("real.csv", "s.toml", name))
    schema.write_text(SCHEMA.to_toml())
    records(60).write_csv(real)
    out.write_text("an old report that all may read")
    out.chmod(0o644)
    done = CliRunner().invoke(cli, [*map(str, ("evaluate", real, real, "--schema", schema, "--report", out))])
    assert done.exit_code == 0, done.output
    assert f"PRIVATE as well: {out}" in done.stdout
    assert ("Its name does not say so: consider" in done.stdout) == (name == "report.html")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {"s.toml", "real.csv", name}


def test_lost_zeros_are_told_first_and_drawn() -> None:
    gain = Attribute(name="gain", kind="integer", edges=(0, 5_000, 100_000))
    schema = Schema(name="h", attributes=(gain, Attribute(name="hours", kind="integer", edges=(0, 100))))
    real = pl.DataFrame({"gain": [0] * 450 + list(range(5_000, 55_000, 1_000)), "hours": [40, 41] * 250})
    spread = pl.when(pl.col("gain") == 0).then(pl.int_range(500) * 9).otherwise("gain")
    found, document = reported(real, real.with_columns(gain=spread), schema)
    read(document)
    assert [column.verdict for column in found.columns] == ["do not use", "use"]
    assert found.score is not None
    assert document.index(str(escape(found.score.line))) < document.index("<section")
    assert "exactly 0: 0.2% for 90.0%" in document
    assert document.index("Numbers of gain") < document.index("Numbers of hours")
    for table in ("Quantiles", "Pairs, the worst first"):
        assert f"<caption>{table}" in document


def test_columns_pairs_and_tails_have_a_verdict_and_the_worst_a_picture() -> None:
    """a and b go together in the real rows alone; of amount, -1 means missing and 999 is special."""
    kinds = '{type="categorical", values=["x","y","z"]}'
    amount = '{type="integer", edges=[0,10,20,1000], special=[999], missing="-1"}'
    schema = Schema.from_toml(f"attributes.a={kinds}\nattributes.b={kinds}\nattributes.amount={amount}")
    rows = np.arange(3000)
    real = pl.DataFrame({"a": rows % 3, "b": rows % 3, "amount": rows // 3 % 20}).with_columns(
        pl.col("a", "b").cast(pl.String).replace({"0": "x", "1": "y", "2": "z"}),
        amount=pl.when(pl.col("amount") == 7).then(999).when(pl.col("amount") == 3).then(-1).otherwise("amount"),
    )
    found, document = reported(real, real.with_columns(b=real["b"].sample(fraction=1, shuffle=True, seed=1)), schema)
    read(document)
    columns, pairs, tails = found.summary
    assert columns == ("Columns", "use", "All 3 can be used")
    assert tails == ("Tails", "use", "1 of 1 can be used")
    assert pairs[:2] == ("Pairs", "with care")
    assert re.fullmatch(
        r"2 of 3 can be used, 1 cannot. Of what columns say of each other, \d+ of 100 is kept. "
        r"The worst: a and b, association 0.\d\d for 1.00",
        pairs[2],
    )
    # Its three tables have one scale for shares, and one for differences: nothing is left on the diagonal but chance.
    picture = document[document.index("<title>Rows by a and b") :].partition("</svg>")[0]
    assert [each in picture for each in (">real<", ">synthetic<", ">difference<", "x, x: 33%")] == [True] * 4
    assert picture.count('class="second"') == 3
    assert document.index("Rows by a and b") < document.index("<details>") < document.index("Numbers of amount")
    assert "without 999 (5.0% for 5.0%), -1, which says missing" in document
    card = found._repr_html_()
    assert all(escape(words) in card and escape(words) in document for _, _, words in found.summary)
    assert f"{pairs[0]}: {pairs[1]}. {pairs[2]}." in " ".join(" ".join(found.lines()).split())
    # Dummies have no raw values: nothing is said of pairs and tails.
    _, *others = reported(records(60), dummies(60), SCHEMA)[0].summary
    assert [each[1] for each in others] == ["not compared"] * 2
    # If most are not to be used, none are.
    assert evaluate(real, real.with_columns(a=pl.lit("x"), b=pl.lit("x")), schema).summary[0][1] == "do not use"


def test_many_levels_are_put_together_and_none_is_lost() -> None:
    for attribute, labels in (
        (Attribute(name="n", kind="integer", edges=tuple(range(31))), ("0 …", "27 …")),
        (Attribute(name="c", kind="categorical", values=tuple(f"v{k}" for k in range(30))), ("v0", "all others")),
    ):
        shares = np.arange(30, 0, -1) / 465
        names, groups = together(attribute, shares)
        assert (names[0], names[-1], len(names)) == (*labels, 9)
        assert groups.sum(axis=0).tolist() == [1.0] * 30
        assert (groups @ shares).sum() == pytest.approx(1)


def test_a_table_that_is_written_otherwise_is_compared_with_a_plain_release(tmp_path: Path) -> None:
    schema = Schema(name="t", attributes=(on_axis("real"),), reading=Reading(delimiter=";", decimal=","))
    (tmp_path / "real.csv").write_text("x;y\n0,5;1\n1,25;7\n0,75;3\n")
    (tmp_path / "syn.csv").write_text("x,y\n0.5,1\n1.25,7\n0.75,3\n")
    numbers = evaluate(tmp_path / "real.csv", tmp_path / "syn.csv", schema).to_dict()["columns"][0]["numbers"]
    assert numbers["ks"] == 0
    assert numbers["real"]["mean"] == pytest.approx(2.5 / 3)


def drawn(kind: str, real: object, synthetic: object) -> svg.Binned:
    tables = (held(each) for each in (real, synthetic))
    return svg.histogram(on_axis(kind), [(each.center, each.counts / each.size) for each in tables])


@pytest.mark.parametrize(
    ("kind", "real", "synthetic"),
    [
        ("integer", [1, 2, 2, 3], [1, 3, 3, 7]),
        ("integer", [0, 0, 5, 100_000], [-3, 20, 5_000, 99_999]),
        ("integer", [7, 7], [7]),
        ("real", [0.5, 0.25], [0.75, 0.1]),
        ("real", [0.5], [0.5]),
        ("real", [0.001, 5.5, 1e6], [-0.25, 1e5]),
        ("date", [0, 20_000], [10_000]),
        ("datetime", [1.7e15, 1.7e15 + 1], [1.7e15 + 3e12]),
    ],
)
def test_every_number_is_in_a_bin(kind: str, real: list[float], synthetic: list[float]) -> None:
    found = drawn(kind, real, synthetic)
    assert found.shares.sum(axis=1) == pytest.approx(np.ones(4))
    assert found.beyond == ""
    assert (np.diff(found.edges) > 0).all()
    assert (found.edges[0], found.edges[-1]) == pytest.approx((0, 1))
    assert found.edges.size <= 42
    assert found.ticks
    assert all(-1e-9 <= place <= 1 + 1e-9 for place, _ in found.ticks)


def test_few_whole_numbers_have_a_bar_each_and_a_thin_tail_is_told() -> None:
    found = drawn("integer", [1, 2, 2, 4], [1, 1, 1, 4])
    assert found.shares[[0, 3]].tolist() == [[0.25, 0.5, 0, 0.25], [0.75, 0, 0, 0.25]]
    found = drawn("integer", [*[1, 2, 3, 4] * 100, 9_000], [1, 2, 3, 4] * 100)
    assert found.shares[[0, 3]].sum(axis=1) == pytest.approx((400 / 401, 1))
    assert found.beyond == "0.25% | 0% lie beyond, as far as 9k"


def test_the_axis_is_logarithmic_where_numbers_are_skewed() -> None:
    for kind, numbers in (("integer", [17, 30, 50, 90]), ("integer", [0] * 3), ("date", [1, 20_000])):
        assert axis_scale(on_axis(kind), held(numbers).center, held(numbers).counts) == 0
    skewed = held([0, 25, 3_000, 100_000])
    assert axis_scale(on_axis("integer"), skewed.center, skewed.counts) == 10
    # Half of the picture for the thousands, though one number is a hundred times as large.
    steps = drawn("integer", [*range(1_000, 9_000, 10), 900_000], [5_000])
    assert steps.edges[np.searchsorted(np.cumsum(steps.shares[0]), 0.99)] > 0.3


@pytest.mark.parametrize(
    ("kind", "value", "label"),
    [
        ("integer", 100_000, "100k"), ("integer", -2_500_000, "-2.5M"), ("real", 0.05, "0.05"), ("integer", 0, "0"),
        ("date", 31, "1970-02-01"), ("datetime", 86_400_000_000, "1970-01-02"), ("real", 3e20, "3e+20"),
    ],
)  # fmt: skip
def test_labels_of_an_axis_are_short(kind: str, value: float, label: str) -> None:
    assert tick_text(on_axis(kind), value) == label


def test_a_chart_shows_heaps_missing_values_and_texts() -> None:
    schema = Schema(name="t", attributes=(on_axis("integer"),))
    real = pl.DataFrame({"x": ["40"] * 50 + [str(number) for number in range(40)] + ["N"] * 5 + [None] * 5})
    found = evaluate(real, real, schema)
    numbers = found.columns[0].numbers
    assert numbers is not None
    chart = draw_numbers("x", found.columns[0], numbers, (100, 100))
    # Shares are of all rows, not of the numbers alone.
    for label in ("missing", ">N<", "5.0% | 5.0%"):
        assert label in chart["bars"]
    # The heap is cut in its place, with its share.
    assert re.search(r'class="cut".*?>50%</text>', chart["numbers"], re.DOTALL)
