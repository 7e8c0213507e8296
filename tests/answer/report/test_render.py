"""Templates: every value is escaped, nothing is missing in silence, and Jinja2 waits until a report is made."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files

import jinja2
import pytest
from markupsafe import Markup

from sklar.answer.report.render import clean, render
from sklar.answer.report.svg import histogram


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """A view that shows nothing."""


@pytest.mark.parametrize(
    ("package", "template"),
    [("sklar.answer.report", "publishable.html.j2"), ("sklar.custodian.evaluate", "private.html.j2")],
)
def test_a_value_that_is_missing_is_an_error(package: str, template: str) -> None:
    with pytest.raises(jinja2.UndefinedError, match="is undefined"):
        render(package, template, Nothing())


def test_no_template_turns_escaping_off() -> None:
    folders = [files(package) / "templates" for package in ("sklar.answer.report", "sklar.custodian.evaluate")]
    templates = [file.read_text() for folder in folders for file in folder.iterdir() if file.name.endswith(".j2")]
    assert len(templates) == 4
    for text in templates:
        assert not re.search(r"\|\s*safe\b|autoescape", text)


def test_control_characters_are_replaced_but_markup_is_left_alone() -> None:
    assert clean("a\x00b\nc d") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c d"
    assert clean(Markup("<b>\n</b>")) == Markup("<b>\n</b>")
    assert clean(7) == 7


def test_a_drawing_escapes_its_texts_and_attributes() -> None:
    drawn = histogram([1], ["<i>\x00"], title='"><img>', description="&")
    assert isinstance(drawn, Markup)
    assert "&lt;i&gt;\N{REPLACEMENT CHARACTER}</text>" in drawn
    assert 'aria-label="&#34;&gt;&lt;img&gt;. &amp;"' in drawn
    assert "<title>&#34;&gt;&lt;img&gt;</title>\n<desc>&amp;</desc>" in drawn


def test_jinja_waits_until_a_report_is_made() -> None:
    code = "import sys, sklar.custodian.evaluate.private_report, sklar.answer.report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
