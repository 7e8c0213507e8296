"""Templates and drawings: every value is escaped, labels have room, areas are shares, nothing leaves the drawing."""

from __future__ import annotations

import re
from importlib.resources import files

import jinja2
import numpy as np
import polars as pl
import pytest
from markupsafe import Markup

import sklar
from sklar.answer.report.publish import draw
from sklar.answer.report.render import clean, render
from sklar.answer.report.svg import WIDTH, Bar, Binned, bars, bins, fitted, heat_map, paired_bars, text_width, wrap
from sklar.draw.decode import Shape
from sklar.public.schema import Schema

LABELS = ["a", "a label of several words that is long", "x" * 60, "1,000,000 to 1,999,999", "", "W" * 300]
TEMPLATES = {"sklar.answer.report": "publishable.html.j2", "sklar.custodian.evaluate": "private.html.j2"}


@pytest.mark.parametrize("package", TEMPLATES)
def test_a_template_escapes_and_a_value_that_is_missing_is_an_error(package: str) -> None:
    with pytest.raises(jinja2.UndefinedError, match="is undefined"):
        render(package, TEMPLATES[package], {})
    templates = [each.read_text() for each in (files(package) / "templates").iterdir() if each.name.endswith(".j2")]
    assert templates
    assert not any(re.search(r"\|\s*safe\b|autoescape", text) for text in templates)


def test_control_characters_are_replaced_but_markup_is_left_alone() -> None:
    assert clean("a\x00b\nc d") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c d"
    assert clean(Markup("<b>\n</b>")) == Markup("<b>\n</b>")
    assert clean(7) == 7


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_wrapped_and_not_cut(label: str) -> None:
    lines = wrap(label, 150.0)
    assert len(lines) <= 3
    if text_width(label, 11.5) < 400:
        assert "".join(lines).replace(" ", "") == label.replace(" ", "")
    assert all(text_width(line, 11.5) <= 151 for line in lines)


def test_bars_leave_room_for_labels_and_values() -> None:
    entries = [Bar(label=each, value=0.3, low=-0.1, high=0.9, mark=0.2, told="0 (noise: ±85)") for each in LABELS]
    drawn = bars(entries, title="t", description="d")
    for x, width in re.findall(r'class="bar" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn):
        assert float(x) >= 100
        assert float(x) + float(width) <= WIDTH - text_width("0 (noise: ±85)", 11)
    paired = paired_bars([(each, 0.1, 0.2) for each in LABELS], title="t", description="d")
    assert "1,000,000 to 1,999,999" in paired


def test_the_area_of_a_bin_is_its_share() -> None:
    shares = np.array([0.2, 0.2, 0.6])
    edges, told = np.array([0.0, 0.1, 0.3, 1.0]), ("one", "two", "three")
    whiskers = np.stack([shares, shares - 0.01, shares + 0.01, shares])
    heights, ticks = whiskers / np.diff(edges), ((0.0, "0"), (1.0, "1,000,000"))
    drawn = bins(Binned(edges, whiskers, heights, "per 1", ticks, told), title="t", description="d")
    boxes = re.findall(r'class="bar" x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="([\d.]+)"', drawn)
    areas = [(float(width) + 0.6) * float(height) for width, height in boxes]
    assert np.array(areas) / sum(areas) == pytest.approx(shares, abs=0.01)
    assert all(f"<title>{each}</title>" in drawn for each in told)
    assert drawn.count("whisker") == 3


def test_a_map_has_room_for_its_labels() -> None:
    drawn, width = heat_map(1 - np.eye(2), ["a long name of an attribute", "b"], {(0, 1): "#x"}, "t", "d")
    assert drawn.count(">a long name of an attribute<") == 2
    assert width > 200
    assert fitted("x" * 100, 60, 11).endswith("…")


def test_a_heap_is_cut_in_its_place_and_a_thin_tail_is_told() -> None:
    toml = '[attributes.hours]\ntype = "integer"\nedges = [0, 20, 40, 41, 60, 1_000_000_000]'
    schema = Schema.from_toml(toml)

    def drawn(hours: list[int], synthetic: list[float]) -> str:
        model = sklar.fit(pl.DataFrame({"hours": hours}), schema, epsilon=10.0, method="binary")
        chart = draw(model, schema.attributes[0], np.array(synthetic))
        assert chart["apart"] is None
        return str(chart["on_axis"])

    rest = list(range(2, 60)) * 20
    heap = drawn([40] * 4000 + rest, [0.07, 0.08, 0.77, 0.08, 0])
    # Its own share stands above it.
    assert re.search(r'class="cut".*?>7[678]%</text>', heap, re.DOTALL)
    assert "% of rows at each number" in heap
    tail = drawn([40] * 12_000 + rest * 8 + [10**6] * 90, [0.1, 0.1, 0.696, 0.1, 0.004])
    assert re.search(r">0\.4\d% ± 0\.\d+% lie beyond, as far as 1G<", tail)
    even = drawn([*rest, *range(60, 10**9, 10**6)], [0.1, 0.2, 0, 0.2, 0.5])
    assert "lie beyond" not in even


def test_the_axis_ends_where_numbers_are_drawn_and_not_at_the_last_edge() -> None:
    schema = Schema.from_toml('[attributes.cost]\ntype = "integer"\nedges = [0, 10, 20, 30, 1_000_000]')
    model = sklar.fit(pl.DataFrame({"cost": list(range(30)) * 50}), schema, epsilon=10.0)
    shape = Shape(bins=np.array([0, 1, 2, 2]), heights=np.arange(5.0), places=np.array([0.0, 10, 20, 30, 10**6]))
    charts = [draw(model, schema.attributes[0], np.full(4, 0.25), own)["on_axis"] for own in (None, shape)]
    assert ["30 to 999,999" in str(chart) for chart in charts] == [True, False]
    assert [each.tolist() for each in shape.ends] == [[0, 10, 20, 20], [10, 20, 30, 30]]
