"""What publish writes, checked by the standards' own tools: Frictionless, mlcroissant, SHACL, Hugging Face.

They are in an environment of their own (make standards). Where a tool is missing, its test is skipped.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sklar.trust.passport import publish
from sklar.trust.passport.facts import WORDS
from tests.trust.passport.conftest import EVIL, SCHEMA

# The tools warn of what is old in them.
pytestmark = [pytest.mark.standards, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", params=["all is stated", "nothing is stated"])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that a publisher can state, and one with nothing of it."""
    if request.param == "all is stated":
        return Path(request.getfixturevalue("folder"))
    out = tmp_path_factory.mktemp("plain") / "out"
    publish(request.getfixturevalue("model_file"), out, rows=60)
    return out


def test_frictionless_reads_every_row_and_notices_another_file(published: Path, tmp_path: Path) -> None:
    frictionless = pytest.importorskip("frictionless")
    report = frictionless.Package(str(published / "datapackage.json")).validate()
    assert report.valid, [error.message for task in report.tasks for error in task.errors]
    rows = next(task for task in report.tasks if task.name == "synthetic")
    assert rows.stats["fields"] == SCHEMA.n_attributes
    assert rows.stats["rows"] in (60, 150)
    copy = Path(shutil.copytree(published, tmp_path / "copy"))
    (copy / "synthetic.csv").write_text((copy / "synthetic.csv").read_text().replace("F,", "Q,", 1))
    assert not frictionless.Package(str(copy / "datapackage.json")).validate().valid


def test_mlcroissant_reads_the_rows(published: Path, tmp_path: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant")
    copy = Path(shutil.copytree(published, tmp_path / "copy"))
    document = json.loads((copy / "croissant.json").read_text())
    for file in document["distribution"]:
        # Nothing is downloaded: the files are those of the folder.
        file["contentUrl"] = file["contentUrl"].rsplit("/", 1)[-1]
    (copy / "local.json").write_text(json.dumps(document))
    found = mlcroissant.Dataset(jsonld=str(copy / "local.json"))
    issues = found.metadata.ctx.issues
    assert not issues.errors
    assert not issues.warnings or "license" not in document
    assert str(found.metadata.ctx.conforms_to).endswith("1.1") or document["conformsTo"].endswith("/1.1")
    record = next(iter(found.records("rows")))
    names = {field["@id"]: field["name"] for field in document["recordSet"][0]["field"]}
    # Croissant has no type for durations.
    assert [names[key] for key in record] == [each.name for each in SCHEMA.attributes if each.kind != "duration"]


def test_dcat_keeps_to_its_shapes(published: Path) -> None:
    rdflib, pyshacl = pytest.importorskip("rdflib"), pytest.importorskip("pyshacl")
    graph = rdflib.Graph().parse(published / "dcat.jsonld", format="json-ld", publicID="https://example.org/base/")
    shapes = rdflib.Graph().parse(Path(__file__).with_name("dcat_shapes.ttl"))
    conforms, _, text = pyshacl.validate(graph, shacl_graph=shapes, meta_shacl=True)
    assert conforms, text
    title = rdflib.URIRef("http://purl.org/dc/terms/title")
    for each in list(graph.subject_objects(title)):
        graph.remove((each[0], title, each[1]))
    # Controls: what is required is noticed when it is missing.
    assert not pyshacl.validate(graph, shacl_graph=shapes)[0]


def test_hugging_face_reads_the_card(published: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.DatasetCard.load(published / "README.md")
    stated = card.data.to_dict()
    assert stated["size_categories"] == ["n<1K"]
    assert stated["configs"][0]["data_files"][0]["path"] == "synthetic.parquet"
    assert stated.get("license") in (None, "cc-by-4.0")
    assert "## Citation" in card.text


# The layout of the registry (see its comment), as JSON Schema.
REGISTRY = json.loads(Path(__file__).with_name("registry.json").read_text())


def marked(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the entry says that somebody has to fill something in."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from marked(value, (*path, key))
    if isinstance(node, str) and node.startswith(WORDS["registry"]["mark"]):
        yield path


def test_the_registry_would_take_the_entry_once_the_marks_are_filled_in(published: Path) -> None:
    yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
    entry = yaml.safe_load((published / "opendp_registry.yaml").read_text())
    checker = jsonschema.Draft7Validator(REGISTRY, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)
    open_places = set(marked(entry))
    assert {tuple(error.absolute_path) for error in checker.iter_errors(entry)} <= open_places
    for *path, last in open_places:
        node = entry
        for key in path:
            node = node[key]
        node[last] = {"data_curator_type": "Government", "publication_date": "2026-01-01"}.get(str(last), "x")
    assert not list(checker.iter_errors(entry))
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] == 5.0
    assert entry["deployment"]["basic"]["data_curators"][0]["data_curator_name"] in (EVIL, "x")
