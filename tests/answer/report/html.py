"""A strict reader of the reports' HTML: balanced tags, headings in order, alternatives for drawings, no network."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}
# Names that a table may have, and that a page must never show as they are.
EVIL = ("<script>alert(1)</script>", '"><img src=x>', "</svg></title>'&\x7f")
# Elements of our drawings that close themselves.
DRAWN = {"rect", "path", "line"}
TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav", "section", "div", "a",
    "h1", "h2", "h3", "p", "b", "em", "code", "pre", "ul", "ol", "li", "dl", "dt", "dd", "figure", "figcaption",
    "details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "g", "desc", "text", *DRAWN,
}  # fmt: skip


class Reader(HTMLParser):
    """Collects what a test asks about; raises where tags do not balance."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]
        assert not any(name.startswith("on") for name in given), "no script, not even inline"
        if "id" in given:
            self.ids.append(given["id"] or "")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        labeled = given.get("aria-hidden") == "true" or (
            given.get("role") in ("img", "group") and given.get("aria-label")
        )
        assert tag != "svg" or labeled
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in DRAWN
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(document: str) -> Reader:
    """Read a report and check what every report promises."""
    reader = Reader()
    reader.feed(document)
    reader.close()
    assert reader.open == []
    assert document.startswith("<!DOCTYPE html>")
    assert reader.headings[0] == 1
    assert reader.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(reader.headings, reader.headings[1:], strict=False))
    assert len(set(reader.ids)) == len(reader.ids)
    assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
    assert not reader.tags & {"script", "iframe", "object", "embed", "link", "img", "form"}
    assert not re.search(r"https?:|@import|url\(", document)
    return reader


def check_escaped(document: str, evil: str) -> None:
    """A name is nowhere in a report as it is, nor does any part of it become markup."""
    reader = read(document)
    assert evil not in document
    assert not re.search("<script|<img", document, re.IGNORECASE)
    assert reader.tags <= TAGS
