"""All pictures of `docs/images/`: the studio as a new user walks through it, with clicks counted, and both reports.

python -m experiments.studio --out docs/images                  (a generated census)
python -m experiments.studio adult.csv --no-pictures
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import click
import polars as pl

import sklar
from experiments import record
from experiments.screenshots import DEVICES, chromium, shoot, squeeze
from sklar.files.write import write_text
from sklar.generate import generate, schema_toml
from sklar.public.schema import Schema

_WAIT_MS = 300_000
# Steps that documentation shows, each on three devices and in the dark.
_PICTURED = ("open", "describe", "plan", "release", "report", "publish")


_TOLD = """\
![The first page of the studio](../images/studio-open-desktop.png)

How many clicks a new user needs from a file to a published release, and how long each step takes. The last column is
the page alone, without the work that it starts. Pictures of every step are in docs/images."""
_METHODS = """\
A browser without a window walks through the studio with a generated census of 20,000 rows (`python -m
experiments.studio`), as a new user would who accepts what is proposed. Seconds are of the wall, clicks add up; a page
alone is the best of five requests."""


@dataclass
class Walk:
    """One walk: its page, where pictures go, and what was counted."""

    page: Any
    out: Path | None
    began: float = field(default_factory=time.monotonic)
    clicks: int = 0
    steps: list[tuple[str, int, float]] = field(default_factory=list)
    pages: dict[str, float] = field(default_factory=dict)

    def click(self, role: str, name: str) -> None:
        """One click of the user's."""
        self.page.get_by_role(role, name=name).first.click()
        self.clicks += 1

    def done(self, step: str) -> None:
        """A step is done: take its pictures, and note what it took. Taking pictures takes no time of the user's."""
        self.steps.append((step, self.clicks, time.monotonic() - self.began))
        if self.out is not None and step in _PICTURED:
            began = time.monotonic()
            self.page.wait_for_load_state("networkidle")
            for device, (width, height) in DEVICES.items():
                self.page.set_viewport_size({"width": width, "height": height})
                self.picture(self.out / f"studio-{step}-{device}.png")
            self.page.set_viewport_size({"width": DEVICES["desktop"][0], "height": DEVICES["desktop"][1]})
            self.page.emulate_media(color_scheme="dark")
            self.picture(self.out / f"studio-{step}-dark.png")
            self.page.emulate_media(color_scheme="light")
            self.began += time.monotonic() - began

    def picture(self, target: Path) -> None:
        """A picture of the page as it is."""
        self.page.screenshot(path=str(target))
        squeeze(target, self.page.viewport_size["width"])


def walk(folder: Path, table: str, out: Path | None) -> Walk:
    """From a table to a published folder."""
    from playwright.sync_api import sync_playwright

    server = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "sklar", "studio", str(folder), "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    try:
        first = cast(IO[str], server.stdout).readline().strip()
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(_WAIT_MS)
            page.goto(first)
            made = Walk(page, out)
            _steps(made, table)
            browser.close()
            return made
    finally:
        server.terminate()
        server.wait(timeout=30)


def _steps(made: Walk, table: str) -> None:
    page, name = made.page, table.split(".")[0]
    made.click("button", table)
    page.wait_for_url("**/open")
    made.done("open")
    made.click("button", "Read all rows and propose a schema")
    page.wait_for_url("**/describe")
    made.done("describe")
    made.click("button", "Accept all")
    made.click("link", "Go on: plan the budget")
    page.locator("#preview svg").first.wait_for()
    made.done("plan")
    made.click("button", "Use this plan")
    page.wait_for_url("**/release")
    made.done("release")
    made.click("button", "Release, and spend epsilon")
    page.locator(".bars li:nth-child(6)").wait_for()
    made.done("progress")
    page.get_by_role("heading", name="Release 1 is made").wait_for()
    made.click("link", "Look at it beside the real rows")
    page.frame_locator("iframe").get_by_role("heading", level=1).wait_for()
    made.done("look")
    made.click("link", "Go on: the report for readers")
    page.frame_locator("iframe").get_by_role("heading", level=1).wait_for()
    made.done("report")
    made.click("link", "Go on: publish")
    page.get_by_text("verified.").first.wait_for()
    made.click("button", f"Write the folder {name}-1-published")
    page.get_by_text("put it online as it is").wait_for()
    made.done("publish")
    made.click("link", "Books")
    page.get_by_text("charged in full").wait_for()
    made.done("books")
    made.pages = _times(page, name)


def _times(page: Any, name: str) -> dict[str, float]:
    """How long each page takes from the request to its last byte, in milliseconds: the best of five."""
    took = """async (path) => {
      let best = Infinity;
      for (let time = 0; time < 5; time += 1) {
        const began = performance.now();
        await (await fetch(path)).text();
        best = Math.min(best, performance.now() - began);
      }
      return best;
    }"""
    steps = ("open", "describe", "plan", "release", "look", "report", "publish", "books")
    return {step: page.evaluate(took, f"/t/{name}/{step}") for step in steps}


def reports(folder: Path, out: Path) -> None:
    """Pictures of both reports on a release of the generated census, by its public schema, and its forecast."""
    _, frames = generate("census", rows=30_000, seed=7)
    rows, schema = pl.concat(list(frames)), Schema.from_toml(schema_toml("census"))
    model = sklar.fit(rows, schema, epsilon=1.0)
    model.save(folder / "census.sklar")
    sklar.report(model, out=folder / "report.html")
    sklar.evaluate(rows, model.sample(rows.height, seed=1), schema, report=folder / "PRIVATE.html")
    for name, height in (("report", 1000), ("private", 1400)):
        page = folder / f"{'PRIVATE' if name == 'private' else name}.html"
        for device, (width, _) in DEVICES.items():
            shoot(page, out / f"{name}-{device}.png", width=width, height=height)
        shoot(page, out / f"{name}-dark.png", width=1280, height=height, dark=True)
    shoot(folder / "report.html", out / "report-charts.png", width=1280, height=900, section="margins")
    write_text(folder / "census.toml", schema.to_toml())
    epsilons = [text for each in ("0.25", "0.5", "1", "2", "4") for text in ("--epsilon", each)]
    asked = ["--schema", str(folder / "census.toml"), "--rows", "30000", *epsilons, "--plot", str(out / "forecast.svg")]
    subprocess.run([sys.executable, "-m", "sklar", "forecast", *asked], check=True, stdout=subprocess.DEVNULL)  # noqa: S603


@click.command()
@click.argument("table", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("docs/images"), show_default=True)
@click.option("--pictures/--no-pictures", default=True, show_default=True)
@click.option("--page", is_flag=True, help="Write docs/results/studio.* too.")
def main(table: Path | None, out: Path, *, pictures: bool, page: bool) -> None:
    """Walk through the studio with TABLE, or with a generated census."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "statistics"
        folder.mkdir()
        if table is None:
            _, frames = generate("census", rows=20_000, seed=7)
            pl.concat(list(frames)).write_csv(folder / "census.csv")
        else:
            shutil.copy(table, folder / table.name)
        name = "census.csv" if table is None else table.name
        made = walk(folder, name, out if pictures else None)
        if pictures:
            reports(Path(place), out)
    steps = [
        {"step": step, "clicks": clicks, "seconds": round(seconds, 1), "page_ms": round(made.pages.get(step, 0.0))}
        for step, clicks, seconds in made.steps
    ]
    lines = [[each["step"], each["clicks"], f"{each['seconds']:.1f}", each["page_ms"] or "-"] for each in steps]
    shown = record.table(["step", "clicks", "seconds until it is done", "the page alone, ms"], lines)
    click.echo(shown)
    if page:
        text = record.told("A walk through the studio", _TOLD, shown, _METHODS)
        document = {"header": record.header("experiments.studio"), "steps": steps}
        record.write(record.RESULTS, "studio", document=document, markdown=text)


if __name__ == "__main__":
    main()
