"""Step 6, publish: verify's verdict, the folder that can be put online, and downloads."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import FileResponse, Response

from sklar.errors import DataError
from sklar.studio.folder import Desk, Folder
from sklar.studio.pages.looking import report_text
from sklar.studio.pages.visit import Visit, go, show
from sklar.trust.verify import verify

_WHAT = {
    ".csv": "synthetic rows",
    ".sklar": "the model: noisy tables, certificate, and what draws rows",
    ".report.html": "the report for readers",
    ".toml": "the schema",
}
_STATED = ("publisher", "contact", "license", "url")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A file that may be given to anybody."""

    name: str
    what: str
    bytes: int


def publishing(visit: Visit) -> Response:
    """What there is to publish."""
    number, out = visit.release, ""
    commands: tuple[str, ...] = ()
    products: list[Product] = []
    published: list[Product] = []
    if number is not None:
        # So that it can be downloaded.
        report_text(visit)
        stem, out = visit.stem, f"{visit.stem}-published"
        commands = (f"sklar verify {stem}.sklar", f"sklar publish {stem}.sklar --out {out}", f"sklar verify {out}")
        products, published = _products(visit.folder, visit.desk, number), _published(visit.folder, out)
    works = [each for each in visit.works.all(visit.desk.name) if each.kind == "publish" and each.release == number]
    return visit.page(
        "publish.html.j2",
        "Publish",
        "publish",
        commands=commands,
        release=number,
        releases=visit.releases,
        products=products,
        published=published,
        out=out,
        running=visit.works.running(),
        last=works[-1] if works else None,
        problem=visit.plain(works[-1].message) if works else "",
    )


def _products(folder: Folder, desk: Desk, number: int) -> list[Product]:
    names = {suffix: desk.schema if suffix == ".toml" else f"{desk.name}-{number}{suffix}" for suffix in _WHAT}
    return [
        Product(name=name, what=_WHAT[suffix], bytes=folder.inside(name).stat().st_size)
        for suffix, name in names.items()
        if folder.inside(name).is_file()
    ]


def _published(folder: Folder, out: str) -> list[Product]:
    root = folder.inside(out)
    return [
        Product(name=folder.relative(path), what="", bytes=path.stat().st_size)
        for path in sorted(root.rglob("*") if root.is_dir() else ())
        if path.is_file() and path.resolve().is_relative_to(root)
    ]


def verdict(visit: Visit) -> Response:
    """Verify's verdict, fetched after the page: it recomputes what the release cost."""
    path = visit.folder.inside(f"{visit.stem}.sklar")
    result = verify(path)
    lines = result.lines()
    concluded = " ".join(lines[lines.index("") + 1 :] if "" in lines else lines).replace(str(path), path.name)
    return show("verdict.html.j2", passed=result.passed, checks=result.checks, concluded=concluded)


def publish(visit: Visit) -> Response:
    """Write the folder, in a process of its own."""
    visit.back = visit.address("publish")
    number, form = visit.asked_release, visit.form
    stated = {name: form[name].strip() for name in _STATED if form.get(name, "").strip()}
    visit.works.begin("publish", visit.desk.name, {"release": number, "said": stated})
    return go(visit.address("publish", release=number))


def download(visit: Visit) -> Response:
    """A file that may be given to anybody: of those that the page lists, and of no other."""
    name, desk = visit.request.path_params["file"], visit.desk
    for number in visit.releases:
        allowed = (*_products(visit.folder, desk, number), *_published(visit.folder, f"{desk.name}-{number}-published"))
        if any(each.name == name for each in allowed):
            path = visit.folder.inside(name)
            # A browser must never show it as a page of the studio.
            return FileResponse(path, filename=path.name, media_type="application/octet-stream")
    raise DataError("there is no such file to give out. Choose one from the list.")
