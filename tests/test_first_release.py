"""The README's commands on files as people have them, with no more editing than answering the review's questions."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

import sklar
from sklar.public.schema import Schema
from tests.cli.conftest import call

ADULT = Path(__file__).parent.parent.parent / "shared" / "data" / "adult.csv"
ROWS = 3_000


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, typed: str = "") -> str:
    return call(*arguments, cwd=Path.cwd(), typed=typed).output


def release(table: str, typed: str) -> tuple[Schema, pl.DataFrame]:
    """The README's commands, with these answers; the released schema and rows (every text as it is written)."""
    run("schema", "draft", table, "-o", "t.toml")
    assert "Every entry is reviewed" in run("schema", "review", "t.toml", table, typed=typed)
    run("forecast", "--schema", "t.toml", "--rows", str(ROWS), "--epsilon", "1")
    run("release", table, "--schema", "t.toml", "--epsilon", "1", "--out", "synthetic.csv")
    run("report", "synthetic.sklar", "--out", "report.html")
    run("verify", "synthetic.sklar")
    return sklar.load("synthetic.sklar").schema, pl.read_csv("synthetic.csv", infer_schema=False)


def test_semicolons_commas_and_latin_1() -> None:
    """And points for thousands, and days as 14.04.1912."""
    pick = random.Random(60)
    lines = ["Kunde;Straße;Größe;Preis;Geburtstag;Raucher"]
    for number in range(ROWS):
        price = f"{pick.randrange(1, 9)}.{pick.randrange(1000):03},{pick.randrange(100):02}"
        born = f"{pick.randrange(1, 29):02}.{pick.randrange(1, 13):02}.{pick.randrange(1940, 2005)}"
        street = pick.choice(["Südweg", "Nordstraße", "Ostend"])
        lines.append(f"{number};{street};{pick.randrange(150, 200)};{price};{born};{pick.choice(['Ja', 'Nein'])}")
    Path("kunden.csv").write_text("\n".join(lines) + "\n", encoding="latin-1")
    schema, rows = release("kunden.csv", typed="\n" * 20)
    assert schema.names == ("Straße", "Größe", "Preis", "Geburtstag", "Raucher")
    assert set(rows["Straße"]) <= {"Südweg", "Nordstraße", "Ostend", "other"}
    assert rows["Geburtstag"].str.contains(r"^\d\d\.\d\d\.(19|20)\d\d$").all()
    assert set(rows["Raucher"]) == {"Ja", "Nein"}
    assert all(attribute.known_from == "found" for attribute in schema.attributes if attribute.kind != "boolean")


def test_sentinels() -> None:
    """Numbers among which codes stand: -9 for refused, N for not applicable, 999 for unknown."""
    pick = random.Random(61)
    lines = ["id,income,hours_per_week,visits,smoker,month"]
    for number in range(ROWS):
        income = pick.choice(["N", "-9", *[str(pick.randrange(0, 900) * 100) for _ in range(6)]])
        visits = "999" if pick.random() < 0.1 else str(int(pick.expovariate(0.1)))
        hours = "40" if pick.random() < 0.5 else str(pick.randrange(1, 80))
        lines.append(f"{number},{income},{hours},{visits},{pick.choice('YN')},{pick.randrange(1, 13)}")
    Path("t.csv").write_text("\n".join(lines) + "\n")
    schema, rows = release("t.csv", typed="A\n")
    assert schema.attribute("income").special == ("N", -9)
    assert schema.attribute("visits").special == (999,)
    for column, code, share in (("income", "N", 1 / 8), ("income", "-9", 1 / 8), ("visits", "999", 0.1)):
        # Noise on a count at epsilon 1 is tens of rows; the shares are of thousands.
        assert abs(rows.filter(pl.col(column) == code).height / rows.height - share) < 0.06
    assert set(rows["smoker"]) == {"Y", "N"}
    assert schema.attribute("month").values == tuple(map(str, range(1, 13)))


@pytest.mark.slow
@pytest.mark.skipif(not ADULT.exists(), reason="needs the Adult data beside the project")
def test_adult() -> None:
    Path("adult.csv").write_bytes(ADULT.read_bytes())
    # Code-book lists for what a rule ties together; all else as proposed.
    listed = {"education", "education-num", "marital-status", "relationship"}
    run("schema", "draft", "adult.csv", "-o", "t.toml")
    names = Schema.load("t.toml").names
    answers = "".join("c\n" if name in listed else "\n" for name in names) + "y\n" * 12
    schema, rows = release("adult.csv", typed=answers)
    assert schema.names == names
    assert "education-num" in schema.determined
    assert not ((rows["relationship"] == "Wife") & (rows["sex"] == "Male")).any()
    assert abs(rows.filter(pl.col("sex") == "Male").height / rows.height - 0.669) < 0.02
