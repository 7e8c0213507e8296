"""The publishable report: from the model alone, self-contained, readable at any width of table."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from markupsafe import escape
from numpy.typing import NDArray

import sklar
from sklar.answer.report import publishable
from sklar.answer.report.publish import dependences, shown_of
from sklar.answer.report.render import clean
from sklar.budget.certificate import Measured, certify
from sklar.budget.forecast import forecast
from sklar.budget.method import Method
from sklar.budget.plan import plan_tables
from sklar.cli import cli
from sklar.errors import OutputError
from sklar.files.model import Model
from sklar.fitting.latent import LatentModel
from sklar.generate import generate, schema_toml
from sklar.kernel.queries import Block
from sklar.kernel.theorems import Budget
from sklar.public.rules import Forbidden
from sklar.public.schema import Attribute, Schema
from tests.answer.report.html import EVIL, check_escaped, read
from tests.conftest import output_of


@pytest.fixture(scope="module")
def model() -> Model:
    schema = Schema.from_toml(schema_toml("census"))
    _, frames = generate("census", rows=4000, seed=1)
    return sklar.fit(pl.concat(frames), schema, epsilon=2.0)


def wide(m: int, levels: int = 2, rows: int = 100_000, apart: float = 0.0) -> Model:
    """A model of many attributes without fitting: independence, and noise for tables; or two levels so far from it."""
    question = Attribute(name="", kind="categorical", values=tuple(f"v{v}" for v in range(levels)))
    schema = Schema(name="wide", attributes=tuple(replace(question, name=f"question {k}") for k in range(m)))
    budget = Budget(epsilon=1.0)
    plan = plan_tables(schema.cells, budget, one_way_share=0.4)
    generator = np.random.default_rng(1)
    blocks = []
    for (query, scales), mean in zip(plan.parts, (rows / levels, rows / levels**2), strict=True):
        noise = generator.standard_normal(query.n_cells, dtype=np.float32) * float(scales[0]) + mean
        if apart and query.n_cells > m * levels:
            noise += rows * np.tile([apart, -apart, -apart, apart], query.n_cells // 4)
        blocks.append(Block(query=query, scales=scales, values=noise.astype(np.int64)))
    measured = Measured(schema=schema, blocks=tuple(blocks), certificate=certify(schema, budget, blocks, rows))
    even = np.full((1, schema.n_levels), 1 / levels, dtype=np.float32)
    copula = LatentModel(schema=schema, probabilities=even)
    return Model(measured=measured, copula=copula, n_rows=rows, settings={"kind": "independence"})


@pytest.fixture(scope="module")
def document(model: Model) -> str:
    return publishable(model, file_name="census.sklar")


def words(document: str) -> str:
    return " ".join(" ".join(read(document).text).split())


def test_every_part_is_there_and_equal_models_give_equal_bytes(model: Model, document: str) -> None:
    assert publishable(model, file_name="census.sklar") == document
    text = words(document)
    parts = (
        "what was released; The privacy promise, in plain words; Where the privacy budget went; What the table "
        "describes; One column at a time; How columns depend on each other; How well rows and noisy tables agree; "
        "Ask it; sklar infer census.sklar; How to cite and verify it; "
        "sklar verify census.sklar; 88.1% sure of it"
    )
    assert [part for part in parts.split("; ") if part not in text] == []
    assert read(document).tags >= {"svg", "table", "nav", "main", "header", "footer"}
    # The first page is for everyone; the risk names its theorem.
    first = text[: text.index("The details")]
    parts = "What you can use it for; Which columns go together; How are people protected?; at most 58.4% are"
    assert [part for part in parts.split("; ") if part not in first] == []
    assert "theorem" not in first
    assert "even: one of two 50% at most 58.4% at most 88.1%" in text
    assert "is at most 16.8%. It follows from ε, δ and the kind of noise in the certificate by the Gaussian" in text


# What the first screen may say, and of which releases; # stands for numbers and names.
CLAIMS = {
    "These records are invented, each column by itself: together, the columns of a record say nothing.": (
        "none low even"
    ),
    "These records are invented: they are drawn from a mixture of many simple profiles, fitted to noisy tables.": (
        "good one lost"
    ),
    "Beyond the noise, # of the # pairs of columns depend on each other.": "good",
    "Beyond the noise, # of the # pairs of columns depends on each other.": "lost",
    "of the # pairs of columns depend on each other; the records do not show it, the noisy tables do.": "even",
    "The noise hides whether any two columns depend on each other.": "one none low",
    "A mathematical limit bounds what the release can reveal about any one row of it.": "good one none low even",
    "A mathematical limit bounds what the release can reveal about any one person in it, with all their rows, but for "
    "what was read from the records.": "lost",
    "One column usable A group of average size, #, comes back as # to #, # times out of #.": "good even lost",
    "One column usable in part A group of average size, #, comes back as # to #, # times out of #.": "one",
    "One column mostly noise A group of average size, #, cannot be told from none: only groups above # of # "
    "rows stand out.": "low",
    "One column mostly noise No group stands out: a count is off by up to #, and there are # rows in all.": "none",
    "No value of # was common enough to be found: every record has “other” there.": "lost",
    "The noise hides how far the numbers of # reach: do not use its means or large values.": "lost",
    "Two columns together usable A group of average size, #, comes back as # to #, # times out of #.": "good even",
    "Two columns together usable in part A group of average size, #, comes back as # to #, # times out of #.": "lost",
    "Two columns together mostly noise A group of average size, #, cannot be told from none: only groups above # of # "
    "rows stand out.": "one",
    "Two columns together mostly noise No group stands out: a count is off by up to #, and there are": "none low",
    "# of # tables are mostly noise.": "lost",
    "Synthetic records match #% of the pairs as well as the noise allows, or nearly so.": "good lost",
    "Only the noisy tables know pairs; the synthetic records do not.": "none low even",
    "do not use The model draws every column by itself: what records say of three columns together is chance.": (
        "none low even"
    ),
    "do not use What records say of three columns together rests on pairs of which most are noise.": "one",
    "Three or more a hypothesis # of the # sets of three columns were measured;": "good",
    "Three or more a hypothesis No set of three columns was measured;": "lost",
    "the rest is what the model makes of pairs. Check it with another source.": "good lost",
    "± means # times out of #": "good one none low even lost",
    "Percent of the rows that would have to change to make two columns independent.": "good even lost",
    "Empty: nothing beyond the noise. Choose a number to see its table.": "good even lost",
    "No pair stands out of the noise. Columns may depend on each other all the same.": "one none low",
    "Noise hides every single row. Suppose somebody wants to know one thing about one row of yours,": (
        "good one none low even"
    ),
    "Noise hides every single person, with all their rows. Suppose somebody wants to know one thing about you,": "lost",
    "and half of their guesses would be right. After studying this release with all other knowledge in the world, at "
    "most #% are right": "good one none low even lost",
    "If you have several rows, more may be right about you.": "good one none low even",
    "Not covered: what the schema states of # attributes was drafted from the records and accepted unread.": "lost",
    "Do not look for people in it: nobody is there.": "good one none low even lost",
    "Do not believe in small groups: below about # rows a number may be noise alone.": "good one even",
    "Do not believe in small groups: below about # people a number may be noise alone.": "lost",
    "Do not believe any count over two columns: it may be noise alone, however large it is.": "low",
    "Do not believe any count: it may be noise alone, however large it is.": "none",
    "Do not trust what more than # attributes say together without another source.": "good one lost",
    "Do not relate columns by the synthetic records: they are drawn one by one.": "none low even",
    "Do not use error formulas of ordinary surveys: they do not see the noise.": "good one none low even lost",
}


def test_every_sentence_of_the_first_screen_follows_from_what_was_released() -> None:
    """At epsilon 20 each pair is 100 standard errors or more from independence; other tables have noise of a seed.

    Of `lost` a hundred numbers lie anywhere, and a range takes 15 standard errors more.
    """
    rows = pl.DataFrame({"a": ["x", "y"] * 500, "b": ["x", "y"] * 500, "c": ["x", "y", "x", "x"] * 250})
    kind = '{type="categorical", values=["x","y"]}'
    pairs = Schema.from_toml("".join(f"attributes.{name} = {kind}\n" for name in "abc"))
    good = sklar.fit(rows, pairs, epsilon=20.0)
    even = LatentModel(schema=pairs, probabilities=np.full((1, 6), 0.5, dtype=np.float32))
    one, low, none = (wide(*size) for size in ((6, 20, 1_500), (40, 20, 300), (40, 20, 30)))
    models = {
        "good": good,
        "one": replace(one, settings={"kind": "mixture"}),
        "none": none,
        "low": low,
        "even": replace(good, copula=even, settings={"kind": "independence"}),
        "lost": lost(),
    }
    pages = {name: re.sub("<svg.*?</svg>", "", publishable(each), flags=re.S) for name, each in models.items()}
    told = {
        name: words(page).partition("Synthetic version of")[2].partition("The details")[0]
        for name, page in pages.items()
    }
    named = r"(?<![\w-])(gain|code|(?:two|three)(?= attr)|\d[\d,.]*\d|\d)(?![\w-])"
    told = {name: re.sub(r" +([.;,])", r"\1", re.sub(named, "#", text)) for name, text in told.items()}
    # Noise alone may choose a set of three.
    chosen = "# of the # sets of three columns were measured;"
    told["lost"] = told["lost"].replace(chosen, "No set of three columns was measured;")
    found = {claim: " ".join(name for name in told if claim in told[name]) for claim in CLAIMS}
    assert found == CLAIMS
    # Nothing else is said there.
    for claim in CLAIMS:
        told = {name: text.replace(claim, "|") for name, text in told.items()}
    rest = {
        name: [each for each in text.split("|") if "·" not in each and len(each.split()) > 6]
        for name, text in told.items()
    }
    assert [*rest.values()] == [[]] * len(models)


def lost() -> Model:
    """A release of a draft that nobody read: a number whose range noise hides, and codes that are too rare."""
    schema = Schema.from_toml("""
    table = {name = "t", person = "id", count = "people"}
    [attributes]
    gain = {type="integer", domain="private", low=0, high=1_000_000_000, reviewed="unread"}
    code = {type="categorical", domain="private", reviewed="unread"}
    a = {type="categorical", values=["x","y"]}
    b = {type="categorical", values=["x","y"]}
    c = {type="integer", low=0, high=16, bins=16}
    d = {type="integer", low=0, high=16, bins=16}""")
    row = np.arange(3_000)
    columns = {"id": row, "gain": np.where(row % 30, 0, 1_000 * row), "code": [f"k{i}" for i in row], "c": row % 16}
    sides = np.where(row % 7 < 3, "x", "y")
    return sklar.fit(pl.DataFrame(columns | {"a": sides, "b": sides, "d": row // 16 % 16}), schema, epsilon=0.6)


def test_intervals_of_dependence_hold_the_estimate_and_nearly_always_the_truth() -> None:
    """An interval misses in 5%: 42 of 60 do in ten releases, however pairs of one go together, below 1e-6."""
    answers, held = np.random.default_rng(4).random(2_000), 0
    rows = pl.DataFrame({"a": answers < 0.3, "b": answers < 0.5, "c": answers < 0.9, "d": answers < 0.6})
    schema = Schema.from_toml("".join(f'attributes.{name} = {{type="boolean"}}\n' for name in "abcd"))
    columns = rows.to_numpy()
    first, second = schema.cells.pairs
    both = (columns[:, first] & columns[:, second]).mean(axis=0)
    true = 2 * np.abs(both - columns.mean(axis=0)[first] * columns.mean(axis=0)[second])
    for _ in range(10):
        found, (low, high) = dependences(sklar.fit(rows, schema, epsilon=2.0))
        assert ((low <= found) & (found <= high)).all()
        held += int(((low <= true) & (true <= high))[found > 0].sum())
        assert (found > 0).all()
    assert held >= 19


def test_shares_of_the_cost_are_those_of_the_plan() -> None:
    """As the forecast has them, which knows no noisy tables: two points of rounding, and what the second stage does."""
    schema = Schema.from_toml(
        'attributes.n = {type="real", domain="private", low=0, high=1000, step=1}\n'
        'attributes.b = {type="boolean"}\nattributes.c = {type="boolean"}'
    )
    numbers = pl.DataFrame({"n": np.arange(3_000) % 997, "b": [True, False] * 1_500, "c": [True, True, False] * 1_000})
    shown = shown_of(sklar.fit(numbers, schema, epsilon=3.0), "m")["measurements"]
    shares = {f"{what} {stage}": int(share.rstrip("%")) for stage, what, *_, share in shown}
    split = {name: 100 * share for name, share in forecast(schema, rows=3_000, epsilon=3.0).split}
    assert abs(sum(shares.values()) - 100) <= 3
    assert abs(shares["tables of where numbers lie inside bins 1"] - split["where numbers lie inside bins"]) <= 2
    assert abs(shares["domains of attributes search"] - split["finding domains"]) <= 2


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 5.0, "method": "binary"},
        {"epsilon": 5.0, "method": Method(name="binary", paper=True, dummies=True)},
        {"budget": Budget(epsilon=5.0, neighbors="add-remove")},
    ],
    ids=["binary", "paper", "add-remove"],
)
def test_every_kind_of_model_has_one(settings: dict[str, Any]) -> None:
    schema = Schema.from_toml('[attributes.a]\ntype="boolean"\n[attributes.b]\ntype="integer"\nedges=[0,1,2,3]')
    table = pa.table({"a": [True, False] * 200, "b": [0, 1, 2, 2] * 100})
    one = Schema(name="one", attributes=schema.attributes[:1])
    for each in (schema, one):
        text = publishable(sklar.fit(table.select(each.names), each, **settings))
        read(text)
        assert ("had not held you at all" in text) == ("budget" in settings)


def of_towns(town: str) -> Model:
    """A release of a town, stated so, and a truth value."""
    schema = Schema.from_toml(f'attributes.town = {{type="categorical", {town}}}\nattributes.b = {{type="boolean"}}')
    return sklar.fit(pa.table({"town": ["Rome"] * 400, "b": [True, False] * 200}), schema, epsilon=5.0)


def test_domains_that_were_found_are_not_called_public() -> None:
    text = words(publishable(of_towns('domain="private", at_most=4')))
    assert (
        "The categories and bins of 1 of the 2 attributes are public knowledge, as the custodian states. Noisy counts "
        "found those of 1; the privacy account includes that search." in text
    )
    assert "not from the records" not in text
    assert re.search(r"town categorical, 2 levels .* found with noise, at a cost", text)
    # The search, what it found and what it cost.
    assert re.search(r"town 1 categories, by \d+ rows or more after noise 1 [\d.]+ \d+\.\d%", text)
    assert re.search(r"looked for them in the records, with noise, and paid \d+\.\d% of the whole cost for that", text)
    assert "their categories and bins unless noisy counts found them" in text


def test_domains_that_were_read_from_the_rows_are_named() -> None:
    model = of_towns('values=["Rome"], provenance="rows"')
    assert model.certificate.read_from_rows == ("town",)
    text = words(publishable(model))
    assert "Those of 1 were read from the confidential records , at the custodian's risk: town." in text
    assert "It does not cover the categories and bins of 1 attribute (town): the custodian read them" in text
    assert "not from the records" not in text


WORDS = """
table = {name = "t", title = "People of Utopia", description = "Everybody who answered."}
[attributes.age]
type = "integer"
title = "Age at the census"
unit = "years"
description = "In completed years."
edges = [0, 18, 40, 45, 100]
points = [40]
missing = "?"
[attributes.sex]
type = "categorical"
values = ["F", "M", "X"]
labels = { F = "female", M = "male", X = "a long label that must not be cut, however long it is" }
"""


def test_words_labels_and_intervals_read_as_a_person_says_them() -> None:
    rows = pl.DataFrame({"age": [30, 42, 17, 40] * 100, "sex": ["F", "M"] * 200})
    document = publishable(sklar.fit(rows, Schema.from_toml(WORDS), epsilon=5.0, method="binary"))
    text = words(document)
    for part in (
        "Synthetic version of “People of Utopia”",
        "Everybody who answered.",
        "Age at the census (age) In completed years. Unit: years.",
        "0 to 17, 18 to 39, 40, 41 to 44, 45 to 99, missing (?)",
        "Age at the census (years) age In completed years. A thin line is a single value.",
        "% of rows at each number",
        "female, male, a long label that must not be cut, however long it is",
    ):
        assert part in text, part
    # Nobody is X: the estimate is not negative, and says that it is noise. Nor is any other figure negative.
    assert not re.search(r">-[\d.]+%?<", document)
    drawn = "".join(re.findall(r">([^<]*)</text>", document))
    assert all(word in drawn for word in ("long", "label", "must", "not", "cut,", "however", "is"))
    assert (document.count('class="bar"') >= 3 + 3 + 1, document.count('class="spike"')) == (True, 1)


@pytest.mark.parametrize("evil", EVIL)
def test_names_and_values_cannot_break_out(evil: str) -> None:
    schema = Schema(
        name=evil,
        attributes=(
            Attribute(name=evil, kind="categorical", values=(evil, "b"), missing=f"?{evil}"),
            Attribute(name="x", kind="categorical", values=("'", '"')),
        ),
        rules=(Forbidden(sides=((evil, (0,)), ("x", (0,)))),),
    )
    table = pa.table({evil: ["b"] * 50, "x": ["'"] * 50})
    model = sklar.fit(table, schema, epsilon=1.0)
    stranger = replace(model.certificate, versions={evil: evil})
    odd = replace(model, measured=replace(model.measured, certificate=stranger))
    for each in (model, odd):
        document = publishable(each, file_name=evil)
        check_escaped(document, evil)
        # Controls: what is looked for is there, in a heading, a table, a picture, a command and a list of rules.
        assert document.count(str(escape(clean(evil)))) > 10


@pytest.mark.parametrize("m", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_thousands_of_attributes_stay_small(m: int) -> None:
    document = publishable(wide(m))
    read(document)
    assert len(document.encode()) < 5_000_000
    assert f"Of {m:,} columns the first 48 are here" in document
    assert document.count("<svg viewBox") < 60
    # Every number of a map is a link, and leads to its table.
    document = publishable(wide(m, rows=10**8, apart=0.1))
    numbers = re.findall(r'<a href="#(pair-\d+)"><title>question \d+, question \d+: 20%</title>', document)
    assert (len(numbers), len({*numbers} & {*read(document).ids})) == (30 * 29, 30 * 29 // 2)
    assert document.count('class="cell"') == len(numbers)
    assert f"Of {m:,} columns the 30 with the strongest dependences." in document
    assert len(document.encode()) < 5_000_000


def test_large_domains_stay_small_and_impossible_estimates_are_shown_as_noise() -> None:
    document = publishable(wide(6, levels=300, rows=10_000))
    read(document)
    assert len(document.encode()) < 1_000_000
    assert "280 others together" in document
    assert "The 280 smallest values have one bar together." in document
    # Of 29 values that nobody has, none is below nothing in one of 500 million releases.
    kinds = ", ".join(f'"k{k}"' for k in range(30))
    schema = Schema.from_toml(f'attributes.a = {{type="categorical", values=[{kinds}]}}')
    document = publishable(sklar.fit(pa.table({"a": ["k0"] * 400}), schema, epsilon=1.0))
    assert re.search(r"0 \(noise: ±\d+\)", document)
    assert not re.search(r">-[\d.]+%?<", document)
    # Where no value stands out of the noise, nothing is drawn.
    nothing = publishable(wide(3, levels=30, rows=100))
    assert "Nothing stands out of the noise in any of them" in nothing
    assert "<figure" not in nothing


def test_the_command_needs_the_model_alone(model: Model, document: str, tmp_path: Path, monkeypatch: Any) -> None:
    """That no byte of the rows is in it: `tests/guarantees/test_leaks.py`."""
    monkeypatch.chdir(tmp_path)
    model.save("census.sklar")
    output_of(cli, "report", "census.sklar", "--out", "r.html")
    assert Path("r.html").read_text(encoding="utf-8") == document
    with pytest.raises(OutputError, match=r"^'r.pdf' must end in \.html\.$"):
        output_of(cli, "report", "census.sklar", "--out", "r.pdf")


def channels(color: str) -> NDArray[np.float64]:
    return np.array([*bytes.fromhex("".join(2 * d for d in color) if len(color) == 3 else color)]) / 255


def luminance(color: NDArray[np.float64]) -> float:
    linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_contrast_is_at_least_4_5_in_light_and_dark() -> None:
    style = (files("sklar.answer.report") / "templates" / "style.css").read_text()
    schemes = [re.findall(r"--([\w-]+):#(\w+)", block) for block in re.findall(r":root\{([^}]*)\}", style)]
    assert len(schemes) == 3
    for scheme in schemes:
        colors = {name: channels(color) for name, color in scheme}
        deepest = (colors["heat"] + colors["page"]) / 2
        pairs = [("ink", colors["page"]), ("ink", colors["panel"]), ("soft", colors["page"]), ("soft", colors["panel"]),
                 ("link", colors["page"]), ("warn", colors["warn-page"]), ("ink", deepest)]  # fmt: skip
        for name, under in pairs:
            light, dark = sorted((luminance(colors[name]), luminance(under)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, under)
