"""The studio as a custodian uses it: a real server, driven in Chromium. Skipped without Playwright or Chromium."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.budget.ledger import Ledger
from sklar.generate import generate, schema_toml
from sklar.public.schema import Schema
from sklar.trust.passport import verify_folder
from tests.studio.conftest import PEOPLE, SCHEMA

pytestmark = pytest.mark.browser

_CHROMIUM = shutil.which("chromium")
_WAIT_MS = 120_000
# What may shift on a page while it loads, by the browser's own measure; 0.1 is what Chromium calls good.
_MOST_SHIFT = 0.02
# Every line of what went wrong on a page, by the page's own telling.
_WATCH_SHIFTS = """
window.shifts = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


class Server:
    """A studio in a process of its own, as `sklar studio` starts it."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "sklar", "studio", str(folder), "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.first = self.process.stdout.readline().strip()
        self.base = self.first.split("/enter")[0]

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(how)
        self.process.communicate(timeout=30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text(PEOPLE)
    return tmp_path


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts studios, and ends them."""
    started: list[Server] = []

    def start(folder: Path) -> Server:
        started.append(Server(folder))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.end()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if _CHROMIUM is None:
        pytest.skip("no chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page that must stay free of errors: of scripts, of the policy, of files that are missing."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(_WATCH_SHIFTS)
    made = context.new_page()
    made.set_default_timeout(_WAIT_MS)
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))

    def note(message: Any) -> None:
        # The script above is kept out of the sandboxed reports, too.
        if message.type == "error" and not message.text.startswith("Blocked script execution in"):
            wrong.append(message.text)

    made.on("console", note)
    made.expected = wrong
    yield made
    context.close()
    assert wrong == []


def settled(page: Any) -> None:
    """Nothing has shifted, and nothing sticks out on the right."""
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.shifts") <= _MOST_SHIFT, page.url
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), page.url


def accessible(page: Any) -> None:
    """No violation that axe finds, in light and dark."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
        wrong = [
            (each["id"], [node["target"] for node in each["nodes"]][:3], each["nodes"][0].get("failureSummary"))
            for each in found.response["violations"]
        ]
        assert wrong == [], (page.url, scheme)
    page.emulate_media(color_scheme="light")


def checked(page: Any) -> None:
    """A page as every page must be: after a reload, for everybody, on a wide screen and on a phone."""
    address = page.url
    page.reload()
    assert page.url == address
    assert page.locator("h1").count() == 1
    settled(page)
    accessible(page)
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    settled(page)
    page.set_viewport_size({"width": 1280, "height": 900})


def described(page: Any, server: Server, file: str) -> None:
    """From the first address to the columns of a file."""
    page.goto(server.first)
    page.get_by_role("button", name=file).click()
    page.get_by_role("button", name="Read all rows").click()
    page.wait_for_url("**/describe")


def test_the_whole_walk_on_a_generated_census(tmp_path: Path, serve: Callable[..., Server], page: Any) -> None:
    _, frames = generate("census", rows=3000, seed=3)
    pl.concat(frames).write_csv(tmp_path / "census.csv")
    server = serve(tmp_path)
    page.goto(server.first)
    page.wait_for_url(f"{server.base}/")
    checked(page)

    page.get_by_role("button", name="census.csv").click()
    page.wait_for_url("**/t/census/open")
    assert page.locator(".banner.top").is_visible()
    checked(page)

    page.get_by_role("button", name="Read all rows and propose a schema").click()
    page.wait_for_url("**/t/census/describe")
    checked(page)
    page.get_by_role("button", name="Accept all").click()
    page.get_by_role("link", name="Go on: plan the budget").wait_for()
    checked(page)

    page.get_by_role("link", name="Go on: plan the budget").click()
    page.wait_for_url("**/t/census/plan")
    page.locator("#preview svg").first.wait_for()
    checked(page)
    before = page.locator("#buys").inner_text()
    page.locator("#slider").fill("13")
    page.wait_for_function("text => document.getElementById('buys').innerText !== text", arg=before)
    assert page.locator("[name=epsilon]").first.input_value() == "2"
    page.get_by_role("button", name="Use this plan").click()
    page.wait_for_url("**/t/census/release")
    checked(page)

    page.get_by_role("button", name="Release, and spend epsilon 2").click()
    page.locator(".bars progress").first.wait_for()
    page.reload()
    page.get_by_role("heading", name="Release 1 is made").wait_for()
    checked(page)
    # Back and forward lead to pages, and send no form again.
    page.go_back()
    page.go_forward()
    page.get_by_role("heading", name="Release 1 is made").wait_for()

    page.get_by_role("link", name="Look at it beside the real rows").click()
    page.wait_for_url("**/t/census/look")
    page.frame_locator("iframe").get_by_role("heading", level=1).wait_for()
    settled(page)
    assert page.locator(".banner.top").is_visible()
    page.get_by_role("link", name="Go on: the report for readers").click()
    page.frame_locator("iframe").get_by_role("heading", level=1).wait_for()
    settled(page)
    assert page.locator(".banner.top").count() == 0

    page.get_by_role("link", name="Go on: publish").click()
    page.get_by_text("Tables verified.").wait_for()
    checked(page)
    page.get_by_label("Publisher").fill("Office of Statistics")
    page.get_by_role("button", name="Write the folder census-1-published").click()
    page.get_by_text("put it online as it is").wait_for()
    checked(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="README.md").click()
    assert "Office of Statistics" in Path(download.value.path()).read_text()

    page.get_by_role("link", name="Books").click()
    page.get_by_text("charged in full").wait_for()
    checked(page)
    assert len(Ledger(tmp_path / "ledger.db").account("census").charges) == 1
    assert verify_folder(tmp_path / "census-1-published").passed


def test_a_column_is_decided_with_the_keyboard_alone(folder: Path, serve: Callable[..., Server], page: Any) -> None:
    page.goto(serve(folder).first)
    # The first address leads to another.
    page.get_by_role("button", name="people.csv").wait_for()
    tab_to(page, "people.csv", press="Enter")
    page.wait_for_url("**/open")
    tab_to(page, "Read all rows and propose a schema", press="Enter")
    page.wait_for_url("**/describe")
    card = page.locator("article").filter(has=page.get_by_role("heading", name="age"))
    # Edges are reached by Tab, and moved by arrows; the field and the cost follow.
    tab_to(page, "Edge 2 of")
    before = card.locator("[data-edges]").input_value()
    page.keyboard.press("ArrowRight")
    after = card.locator("[data-edges]").input_value()
    assert after != before
    assert card.locator("[value=e]").is_checked()
    page.keyboard.press("Delete")
    assert len(card.locator("[data-edges]").input_value().split(",")) == len(before.split(",")) - 1
    card.locator(".cost").get_by_text(f"{len(before.split(',')) - 2} levels.").wait_for()
    edges = card.locator("[data-edges]").input_value()
    tab_to(page, "Decide on age", press="Enter")
    page.get_by_text("'age' is decided.").wait_for()
    assert ", ".join(str(edge) for edge in Schema.load(folder / "people.toml").attribute("age").edges) == edges
    # The focus is where one goes on: above what is left to accept.
    page.locator("#cards:focus").wait_for()
    tab_to(page, "Accept all", press="Enter")
    page.get_by_text("Accepted unread: ").wait_for()
    tab_to(page, "Go on: plan the budget", press="Enter")
    page.wait_for_url("**/plan")
    tab_to(page, "slider", press="ArrowRight")
    assert page.locator("[name=epsilon]").first.input_value() == "1.25"
    tab_to(page, "Use this plan", press="Enter")
    page.wait_for_url("**/release")
    tab_to(page, "Release, and spend epsilon 1.25", press="Enter")
    page.get_by_role("heading", name="Release 1 is made").wait_for()


def tab_to(page: Any, name: str, *, press: str = "") -> None:
    """Press Tab until the focus is on something of that name, which must show where it is, and a key there."""
    for _ in range(200):
        page.keyboard.press("Tab")
        told = page.evaluate(
            "() => { const it = document.activeElement; if (it === document.body) return ''; "
            "return it.getAttribute('aria-label') || it.id + ' ' + it.textContent }"
        )
        if name in told:
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none" or "Edge" in name
            if press:
                page.keyboard.press(press)
            return
    raise AssertionError(f"Tab never came to {name}")


def test_edges_are_dragged_and_what_it_costs_follows(folder: Path, serve: Callable[..., Server], page: Any) -> None:
    described(page, serve(folder), "people.csv")
    card = page.locator("article").filter(has=page.get_by_role("heading", name="age"))
    grip = card.locator(".edge .grip").nth(3)
    # A mouse reaches what is on the screen.
    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    field = card.locator("[data-edges]")
    before = field.input_value()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 12, box["y"] + 5, steps=3)
    page.mouse.up()
    assert field.input_value() != before
    card.locator(".cost").get_by_text("levels.").wait_for()
    card.get_by_role("button", name="Add an edge").click()
    assert len(field.input_value().split(",")) == len(before.split(",")) + 1
    field.fill("0, 50, 100")
    assert card.locator(".edge").count() == 3
    card.locator(".cost").get_by_text("2 levels.").wait_for()


def test_who_comes_first_and_another_tab_changes_no_price(
    folder: Path, serve: Callable[..., Server], page: Any
) -> None:
    lines = PEOPLE.splitlines()
    ids = ["patient_id", *(str(row // 3) for row in range(len(lines) - 1))]
    (folder / "visits.csv").write_text("\n".join(f"{own},{line}" for own, line in zip(ids, lines, strict=True)))
    described(page, server := serve(folder), "visits.csv")
    assert page.get_by_role("heading").nth(1).inner_text() == "Can a person have several rows?"
    assert page.get_by_role("button", name="Accept all").is_disabled()
    # Plan leads back to the question.
    page.goto(f"{server.base}/t/visits/plan")
    page.get_by_role("alert").get_by_text("Say first whether a person can have several rows").wait_for()
    page.get_by_role("button", name="Yes, and this column says whose they are").click()
    page.get_by_text("134 people").wait_for()
    checked(page)
    page.get_by_role("button", name="Accept all").click()
    page.get_by_role("link", name="Go on: plan the budget").click()
    page.locator("[name=epsilon]").first.fill("8")
    page.locator("[name=total]").fill("20")
    page.get_by_role("button", name="Use this plan").click()
    page.get_by_text("any one person, with all rows that have the same patient_id").wait_for()
    other = page.context.new_page()
    other.goto(f"{server.base}/t/visits/plan?epsilon=9")
    other.locator("#use button").click()
    other.get_by_text("You spend epsilon 9 of 20").wait_for()
    page.get_by_role("button", name="Release, and spend epsilon 8").click()
    page.get_by_role("alert").get_by_text("The plan is epsilon 9 now").wait_for()
    assert not Ledger(folder / "ledger.db").account("visits").charges


def test_a_hopeless_plan_of_a_wide_table_is_no_button(folder: Path, serve: Callable[..., Server], page: Any) -> None:
    scores = np.random.default_rng(1).integers(0, 90, (300, 240))
    pl.DataFrame(scores, schema=[f"score {column}" for column in range(240)]).write_csv(folder / "wide.csv")
    described(page, serve(folder), "wide.csv")
    checked(page)
    page.get_by_role("button", name="Accept all 240").click()
    page.get_by_role("link", name="Go on: plan the budget").click()
    page.locator(".verdict.none").get_by_text("A release would be refused: noise would hide all of").wait_for()
    checked(page)
    assert page.locator("button.main").count() == 0
    page.get_by_role("button", name="Use this plan all the same").click()
    page.get_by_text("You spend epsilon 1 of 3").wait_for()
    assert page.get_by_role("button", name="Release").count() == 0


@pytest.mark.parametrize("private", [False, True])
def test_reports_are_accessible_and_paper_shows_nothing_over_another(folder: Path, page: Any, private: bool) -> None:
    """Nor does anything lead beyond the edge; a report has no script, and no console message."""
    _, frames = generate("census", rows=2_000, seed=3)
    rows, schema, out = pl.concat(frames), Schema.from_toml(schema_toml("census")), folder / "page.html"
    model = sklar.fit(rows, schema, epsilon=2.0)
    if private:
        sklar.evaluate(rows, model.sample(2_000, seed=1), schema, report=out)
    else:
        sklar.report(model, out=out)
    page.goto(out.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    accessible(page)
    page.set_viewport_size({"width": 718, "height": 1_015})
    page.goto(out.as_uri())
    page.emulate_media(media="print")
    displayed = page.evaluate("[...document.querySelectorAll('.charts')].map((it) => getComputedStyle(it).display)")
    assert {*displayed} == {"block"}
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext")
    # Of turned labels no box is where the letters are.
    page.evaluate("document.querySelectorAll('svg text[transform]').forEach((each) => each.remove())")
    page.pdf(path=folder / "page.pdf", prefer_css_page_size=True, print_background=True)
    words = subprocess.run(["pdftotext", "-bbox", folder / "page.pdf", "-"], capture_output=True, text=True, check=True)
    word = re.compile(r'<word xMin="([\d.]+)" yMin="([\d.]+)" xMax="([\d.]+)" yMax="([\d.]+)">(.*?)</word>')
    pages = [word.findall(each) for each in words.stdout.split("<page ")[1:]]
    assert len(pages) > 2
    for held in pages:
        # No white pages; on paper, too, every page says that it is private.
        assert len(held) > 8
        assert any(each[4] == "PRIVATE" and float(each[1]) < 40 for each in held) == private
        boxes = np.array([each[:4] for each in held], dtype=float)
        # A4 is 595 points wide.
        assert boxes[:, 2].max() < 595
        wide, tall = (
            np.minimum(boxes[:, None, at + 2], boxes[None, :, at + 2])
            - np.maximum(boxes[:, None, at], boxes[None, :, at])
            for at in (0, 1)
        )
        over = np.argwhere(np.triu((wide > 1.5) & (tall > 0.45 * (boxes[:, 3] - boxes[:, 1])), 1))
        assert over.size == 0, [held[at] for at in over[:3].ravel()]


def test_a_release_outlives_a_killed_server(folder: Path, serve: Callable[..., Server], page: Any) -> None:
    (folder / "people.toml").write_text(SCHEMA)
    (folder / "people.csv").write_text(PEOPLE + PEOPLE.partition("\n")[2] * 2_000)
    server = serve(folder)
    page.goto(server.first)
    page.get_by_role("button", name="people.csv").click()
    page.get_by_role("button", name="Go on with people.toml").click()
    page.get_by_role("link", name="Go on: plan the budget").click()
    page.get_by_role("button", name="Use this plan").click()
    page.get_by_role("button", name="Release, and spend epsilon 1").click()
    page.locator("[data-live]").wait_for()
    server.end(signal.SIGKILL)
    page.get_by_text("The studio does not answer.").wait_for()
    # What the browser says of a server that is gone is no error of the page.
    page.expected.clear()
    again = serve(folder)
    page.goto(again.first)
    page.goto(f"{again.base}/t/people/release")
    page.get_by_role("heading", name="Release 1 is made").wait_for()
    assert len(Ledger(folder / "ledger.db").account("people").charges) == 1
    assert (folder / "people-1.csv").is_file()
    page.expected.clear()
