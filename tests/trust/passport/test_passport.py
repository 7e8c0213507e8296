"""A published folder: whole, equal wherever it is made, made of the model alone, and every change is found."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import sklar
from sklar.answer.report.publish import shown_of
from sklar.answer.report.render import bound, plain
from sklar.budget.method import Method
from sklar.budget.risk import risk_of
from sklar.cli import cli
from sklar.errors import ModelError, OutputError, SignatureError
from sklar.files.write import MARK
from sklar.paper.gaussian import BinaryCopula
from sklar.trust import passport
from sklar.trust.passport import Publication, publish, verify_folder
from sklar.trust.passport.facts import FILES, MODEL, PASSPORT, SUMS, TABLES
from sklar.trust.passport.prose import code, ids_of, yaml
from tests.answer.report.html import Reader
from tests.cli.conftest import call
from tests.trust.forge import failed
from tests.trust.passport.conftest import EVIL, PUBLISHER, SCHEMA, table

ROWS_CSV, ROWS_PARQUET = "synthetic.csv", "synthetic.parquet"


def test_the_folder_holds_what_it_lists_and_verifies(folder: Path) -> None:
    assert {each.name for each in folder.iterdir()} == {*FILES, "model.sklar.sig", "SHA256SUMS.sig"}
    found = verify_folder(folder)
    assert found.passed, found.lines()
    assert [check.name for check in found.checks[:2]] == ["files", "checksums"]
    assert {"texts", "tables", "rows", "signature"} <= {check.name for check in found.checks}
    for line in (folder / SUMS).read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_every_part_is_the_models(folder: Path, model_file: Path) -> None:
    model = sklar.load(model_file)
    assert (folder / MODEL).read_bytes() == model_file.read_bytes()
    assert json.loads((folder / "certificate.json").read_text()) == json.loads(json.dumps(model.certificate.to_dict()))
    assert sklar.Schema.load(folder / "schema.toml") == model.schema
    assert pl.read_parquet(folder / ROWS_PARQUET).equals(model.sample(150, seed=0))
    values = [value for block in model.measured.blocks for value in block.values.tolist()]
    assert pl.read_parquet(folder / TABLES)["value"].to_list() == values
    readme = (folder / "README.md").read_text()
    assert "People of Utopia" in readme
    assert "Age at the census" in readme
    assert "female, male, other" in readme
    # The promise names what it does not cover.
    assert "does not cover the categories and bins of `sleeps`" in readme
    assert "**read from the records** (`sleeps`)" in (folder / "nist_sp_800_226.md").read_text()


@pytest.mark.slow
def test_equal_models_give_equal_folders_anywhere(folder: Path, model_file: Path, tmp_path: Path) -> None:
    # In another process, time zone, order of hashes and folder; verify compares in this one.
    shutil.copy(model_file, tmp_path / "other.sklar")
    command = [sys.executable, "-m", "sklar", "publish", "other.sklar", "--out", "again", "--rows", "150", *PUBLISHER]
    settings = os.environ | {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=settings)
    for name in FILES:
        if name != SUMS:
            assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name


def test_nothing_but_the_model_goes_in(folder: Path, model_file: Path) -> None:
    held = b"".join(each.read_bytes() for each in folder.iterdir())
    for private in (model_file.name, str(model_file.parent), Path.home().name if len(Path.home().name) > 4 else "~~~~"):
        assert private.encode() not in held
    # No file of today: the only date is the one that was given.
    assert b"2026-03-31" in held


def test_hostile_names_cannot_break_out(folder: Path) -> None:
    for name in ("README.md", "nist_sp_800_226.md", "report.html", "index.html"):
        assert "<script>" not in (folder / name).read_text().replace(code(EVIL), "").replace(code(EVIL)[:-1], "")
    for name in ("croissant.json", "datapackage.json", "dcat.jsonld", "certificate.json", PASSPORT):
        json.loads((folder / name).read_text())
    rows = [line for line in (folder / "README.md").read_text().splitlines() if line.startswith("| ")]
    unescaped = {len(line.replace("\\|", "").split("|")) for line in rows if line.count("|") > 3}
    assert unescaped <= {4, 6}


def test_the_first_page_says_what_the_folder_holds(folder: Path) -> None:
    """Files with their sizes, how to verify and cite, and for search engines what the other descriptions say."""
    text, model = (folder / "index.html").read_text(), sklar.load(folder / MODEL)
    uses, limit = shown_of(model, MODEL)["uses"], bound(risk_of(model.certificate).right(1)[1])
    page = Reader()
    page.feed(text)
    page.close()
    assert page.open == []
    for link in page.links:
        name, _, place = link.partition("#")
        assert name in ("", *FILES)
        assert not place or f'id="{place}"' in (folder / (name or "index.html")).read_text()
    said = " ".join(" ".join(page.text).split())
    assert all(name in said for name in FILES)
    assert f"{(folder / 'report.html').stat().st_size / 1000:.1f} kB" in said
    # Verdicts, figures and the attacker's bound are those of report and README, word for word.
    readme, checklist = ((folder / name).read_text() for name in ("README.md", "nist_sp_800_226.md"))
    report = " ".join(re.sub("<[^>]*>", " ", (folder / "report.html").read_text()).split())
    for name, used in (("One column", uses["one"]), ("Two columns together", uses["pairs"])):
        assert f"**{name}: {used['grade']}.** {used['words']}" in readme
        assert all(f"{name} {used['grade']} {used['words']}" in page for page in (said, report))
        assert f"{used['grade']}: ± {used['error']:,.0f} rows" in checklist
    assert all(f"right at most {limit} of the time" in text for text in (readme, checklist))
    assert all(f"at most {limit} are right" in page for page in (said, report))
    croissant = json.loads((folder / "croissant.json").read_text())
    assert croissant["citeAs"] in said
    [block] = re.findall(r'<script type="application/ld\+json">(.*?)</script>', text)
    found = json.loads(block)
    assert found["@type"] == "Dataset"
    for name in ("description", "license", "url", "datePublished"):
        assert found[name] == croissant[name]
    assert [each["sha256"] for each in found["distribution"]] == [each["sha256"] for each in croissant["distribution"]]
    # Nothing of a hostile name ends the block.
    assert EVIL in {each["name"] for each in found["variableMeasured"]}


def test_every_file_says_that_rows_are_synthetic(folder: Path, tmp_path: Path) -> None:
    readme = (folder / "README.md").read_text()
    assert readme.partition("---\n\n")[2].startswith("**SYNTHETIC DATA")
    assert (folder / "SYNTHETIC.txt").read_text().startswith("THE ROWS IN THIS FOLDER ARE SYNTHETIC.")
    assert set(MARK) < set(pl.read_parquet_metadata(folder / ROWS_PARQUET))
    model, arrow, stated = sklar.load(folder / MODEL), tmp_path / "x.arrow", {k.encode() for k in MARK}
    model.write(arrow, 300, seed=1)
    with pa.memory_map(str(arrow)) as file:
        tables = pa.ipc.open_file(file).read_all(), model.sample(3, seed=1, to="arrow")
    assert all({*table.schema.metadata} == stated for table in tables)
    assert pl.read_ipc(arrow).equals(model.sample(300, seed=1))
    assert list(pl.read_parquet_schema(folder / ROWS_PARQUET)) == [each.name for each in SCHEMA.released]
    for check in ("Labels", "Disclosure", "Structure", "Documentation"):
        assert f"| {check} |" in readme
    # This model answers counts alone.
    assert "sklar infer" not in readme + (folder / "index.html").read_text() + (folder / "report.html").read_text()


def test_questions_of_the_folder_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line that README and first page ask a model with, as a shell would run it."""
    monkeypatch.chdir(tmp_path)
    sklar.fit(table(), SCHEMA, epsilon=5.0).save("m.sklar")
    publish("m.sklar", "out", rows=10, refit=False)
    monkeypatch.chdir("out")
    said = Path("README.md").read_text() + Path("index.html").read_text()
    lines = re.findall("^(?:<pre[^>]*><code>)?(sklar (?:infer|query) [^<\n]*)", said, re.MULTILINE)
    assert len(lines) == 5
    for line in map(html.unescape, lines):
        told = subprocess.run(["sh", "-c", f"printf '%s\\n' {line[5:]}"], check=True, capture_output=True, text=True)
        done = CliRunner().invoke(cli, told.stdout.splitlines())
        # Two columns of this table are one: the regression is refused for what it asks, not for how.
        assert done.exit_code == 0 or "how the regressors vary together" in str(done.exception), (line, done.exception)


def link(place: Path) -> None:
    (place / TABLES).unlink()
    (place / TABLES).symlink_to(place / ROWS_PARQUET)


def forge(place: Path) -> None:
    """What a forger does who may write checksums, but not the signature."""
    for name in ("SHA256SUMS.sig", "model.sklar.sig"):
        (place / name).unlink(missing_ok=True)
    kept = {each.name: passport.content_of(each) for each in place.iterdir() if each.name != SUMS}
    (place / SUMS).write_text(passport.sums(kept))


def rewrite(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Other rows under the same metadata."""
    kept = {key: value for key, value in pl.read_parquet_metadata(path).items() if key.startswith("sklar")}
    change(pl.read_parquet(path)).write_parquet(path, metadata=kept)


def put(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda place: (place / name).write_text((place / name).read_text().replace(old, new))


# The check that fails, and what is changed: those after the checksums with checksums that are right again.
CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "an unknown file": ("files", lambda place: (place / "notes.txt").write_text("x")),
    "a folder inside": ("files", lambda place: (place / "inner").mkdir()),
    "a link": ("files", link),
    "a missing file": ("files", lambda place: (place / "report.html").unlink()),
    "another text": ("checksums", lambda place: (place / "README.md").write_text("x")),
    "no checksums": ("checksums", lambda place: (place / SUMS).write_text("")),
    "certificate": ("texts", put("certificate.json", '"epsilon": 5.0', '"epsilon": 0.1')),
    "report": ("texts", lambda place: (place / "report.html").write_text("<h1>epsilon 0.1</h1>")),
    "rows": ("rows", lambda place: rewrite(place / ROWS_PARQUET, lambda rows: rows.reverse())),
    "csv": ("rows", lambda place: (place / ROWS_CSV).write_text((place / ROWS_CSV).read_text() + "1,F\n")),
    "tables": ("tables", lambda place: rewrite(place / TABLES, lambda cells: cells.with_columns(pl.col("value") + 1))),
    "seed": ("rows", put(PASSPORT, '"seed": 0', '"seed": 1')),
    "billions of rows": ("passport", put(PASSPORT, '"rows": 150', '"rows": 15000000000')),
    "no passport": ("passport", lambda place: (place / PASSPORT).write_text("{")),
    "a passport that says more": ("passport", put(PASSPORT, '"seed"', '"x": 1, "seed"')),
}


@pytest.fixture
def place(folder: Path, tmp_path: Path) -> Path:
    """A copy of the published folder."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_folder_is_refused(change: str, place: Path) -> None:
    failing, alter = CHANGES[change]
    alter(place)
    allowed = {failing}
    if failing not in ("files", "checksums"):
        forge(place)
        # Descriptions state sizes and checksums of the files, so that texts may fail as well.
        allowed = {failing, "texts"}
    found = verify_folder(place)
    assert failing in failed(found) <= allowed
    assert "Do not rely on its privacy claim." in found.lines()[-1]


def test_texts_of_another_version_are_not_checked_and_never_ok(place: Path) -> None:
    """A third verdict, with an exit code of its own; what is claimed is still compared, and so are rows and tables."""
    wrote = json.loads((place / PASSPORT).read_text())["sklar"]
    put(PASSPORT, f'"sklar": "{wrote}"', '"sklar": "9.9.9"')(place)
    (place / "report.html").write_text("<script>alert(1)</script> audited by NIST")
    forge(place)
    found = verify_folder(place)
    assert (found.verdict, found.passed) == ("not verified", True)
    state = {check.name: check.passed for check in found.checks}
    assert (state["texts"], state["claim"], state["rows"]) == (None, True, True)
    done = call("verify", place, cwd=place, code=3)
    assert "--   texts: not checked: no text of Sklar 9.9.9 is compared with the model" in done.output
    assert "Not failed, and not verified: something was not checked in" in done.output
    put("certificate.json", '"epsilon": 5.0', '"epsilon": 0.1')(place)
    (place / ROWS_CSV).write_text((place / ROWS_CSV).read_text() + "1,F\n")
    forge(place)
    again = verify_folder(place)
    assert failed(again) == {"claim"}
    assert {check.name: check.passed for check in again.checks}["rows"] is None


def test_a_folder_of_an_earlier_version_has_not_failed_and_is_not_verified(place: Path) -> None:
    """Its passport says less, and lists its files in other words."""
    said = json.loads((place / PASSPORT).read_text())
    del said["recomputed"]
    said |= {"sklar": "0.2.0", "files": dict.fromkeys(said["files"], "in other words")}
    (place / PASSPORT).write_text(json.dumps(said, indent=1) + "\n")
    forge(place)
    assert verify_folder(place).verdict == "not verified"


def test_parquet_files_hold_nothing_else(place: Path) -> None:
    """Our mark alone is taken, and no other words in its place; other bytes of the same rows are not checked."""
    path = place / ROWS_PARQUET
    kept, rows = pl.read_parquet_metadata(path), pl.read_parquet(path)
    kept.pop("ARROW:schema")
    assert kept == MARK
    for other in (MARK | {"rows": "raw rows"}, dict.fromkeys(MARK, "These are real rows."), {}):
        rows.write_parquet(path, metadata=other, compression="zstd", statistics=False)
        forge(place)
        found = verify_folder(place)
        assert "rows" in failed(found)
        assert "'synthetic.parquet' has metadata that publish does not write" in "\n".join(found.lines())
    for path in (place / ROWS_PARQUET, place / TABLES):
        own = {key: value for key, value in pl.read_parquet_metadata(path).items() if key != "ARROW:schema"}
        pl.read_parquet(path).write_parquet(path, metadata=own or MARK, compression="snappy", statistics=False)
    forge(place)
    found = verify_folder(place)
    state = {check.name: check.passed for check in found.checks}
    assert (state["rows"], state["tables"]) == (None, None)
    assert "what else it holds was not checked" in "\n".join(found.lines())


def test_a_folder_says_whether_its_model_was_recomputed(folder: Path, model_file: Path, tmp_path: Path) -> None:
    assert json.loads((folder / PASSPORT).read_text())["recomputed"] is True
    assert "the model was fitted again to its noisy tables, with the same result" in (folder / "README.md").read_text()
    done = CliRunner().invoke(cli, ["publish", str(model_file), "--out", str(tmp_path / "out"), "--no-refit"])
    assert "The model was not shown to follow from its tables, and the folder says so." in done.output
    assert json.loads((tmp_path / "out" / PASSPORT).read_text())["recomputed"] is False
    assert "was not shown to follow" in (tmp_path / "out" / "README.md").read_text()
    assert verify_folder(tmp_path / "out").verdict == "tables verified"
    put(PASSPORT, '"recomputed": false', '"recomputed": true')(tmp_path / "out")
    forge(tmp_path / "out")
    assert failed(verify_folder(tmp_path / "out")) == {"texts"}


def test_a_model_that_verify_contradicts_is_not_published(model_file: Path, tmp_path: Path) -> None:
    """Neither one that does not follow from its tables, unless that is said, nor one that claims a lower cost."""
    model = sklar.load(model_file)
    assert isinstance(model.copula, BinaryCopula)
    lower = replace(model.measured, certificate=replace(model.certificate, epsilon=0.5))
    other = replace(model, copula=replace(model.copula, levels=model.copula.levels[::-1].copy()))
    for made, check in ((replace(model, measured=lower), "theorem"), (other, "refit")):
        made.save(tmp_path / "m.sklar")
        with pytest.raises(ModelError, match=rf"is not published: it contradicts its certificate \({check}: "):
            publish(tmp_path / "m.sklar", tmp_path / "out", rows=10)
        assert not (tmp_path / "out").exists()
    assert not publish(tmp_path / "m.sklar", tmp_path / "out", rows=10, refit=False).recomputed


def test_signers(place: Path, model_file: Path) -> None:
    key = model_file.parent / "k.key"
    assert verify_folder(place, signer=f"{key}.pub").passed
    forge(place)
    [missing] = [check for check in verify_folder(place, signer="SHA256:x").checks if check.passed is False]
    assert missing.detail == "the folder is not signed"
    done = call("verify", place, "--signer", "SHA256:x", cwd=place, code=1)
    assert "FAIL signature: the folder is not signed" in done.output


def test_a_place_that_is_taken_is_refused(place: Path, model_file: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("x")
    for out, options, message in (
        (taken, {"replace": True}, r"is not empty, and not one that publish wrote\. Name a new one"),
        (tmp_path / "none" / "x", {}, r"does not exist\. Create it first"),
        (taken / "mine.txt", {}, r"is no folder\. Name a new one"),
        (tmp_path / "new", {"key": tmp_path / "no.key"}, r"does not exist\. Make one"),
        (place, {}, r"holds a release already\. Name a new one, or replace it: --replace"),
    ):
        with pytest.raises((OutputError, SignatureError), match=message):
            publish(model_file, out, rows=10, **options)
    done = publish(model_file, place, rows=10, seed=3, replace=True)
    assert (done.rows, done.seed, done.signer, len(done.files)) == (10, 3, None, len(FILES))
    assert pl.read_parquet(place / ROWS_PARQUET).height == 10
    (taken / "mine.txt").unlink()
    # An empty folder is as good as none.
    publish(model_file, taken, rows=10)
    assert {each.name for each in tmp_path.iterdir()} == {"taken", "copy"}


def test_a_failure_leaves_nothing_and_the_old_folder(
    place: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passport, "write_tables", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OutputError, match=r"could not be written: No space left on device. Nothing was left behind"):
        publish(model_file, place, rows=10, replace=True)
    monkeypatch.undo()
    assert [each.name for each in place.parent.iterdir()] == ["copy"]
    assert verify_folder(place).passed


STATED = tomllib.loads(Path(__file__).with_name("stated.toml").read_text())["refused"]


@pytest.mark.parametrize(("name", "value", "requirement"), STATED)
def test_what_a_publisher_states_is_checked(name: str, value: str, requirement: str) -> None:
    with pytest.raises(OutputError) as raised:
        Publication(**{name: value})
    assert str(raised.value) == f"{name} must be {requirement}, got {value!r}."


def test_what_nobody_states_is_marked(model_file: Path, tmp_path: Path) -> None:
    publish(model_file, tmp_path / "out", rows=10)
    readme = (tmp_path / "out" / "README.md").read_text().replace("\\", "")
    assert "| Publisher | not stated |" in readme
    assert "(publisher) (year)." in readme
    entry = (tmp_path / "out" / "opendp_registry.yaml").read_text()
    assert '"data_curator_name": "TO BE FILLED IN"' in entry
    croissant = json.loads((tmp_path / "out" / "croissant.json").read_text())
    assert not {"license", "url", "creator", "datePublished"} & croissant.keys()


def test_a_release_of_dummies_is_published_too(tmp_path: Path) -> None:
    schema = sklar.Schema.from_toml('[attributes.a]\ntype="boolean"\n[attributes.b]\ntype="boolean"')
    rows = pl.DataFrame({"a": [True, False] * 100, "b": [True] * 200})
    dummies = Method(name="binary", paper=True, dummies=True)
    sklar.fit(rows, schema, epsilon=5.0, method=dummies).save(tmp_path / "m.sklar")
    publish(tmp_path / "m.sklar", tmp_path / "out", rows=10)
    assert verify_folder(tmp_path / "out").passed
    package = json.loads((tmp_path / "out" / "datapackage.json").read_text())
    assert [field["name"] for field in package["resources"][0]["schema"]["fields"]] == list(schema.dummy_names)


def test_texts_of_others_are_escaped() -> None:
    assert plain("a_b\n| *b* <i> [x]") == "a\\_b \\| \\*b\\* &lt;i&gt; \\[x\\]"
    assert code("a`b") == "``a`b``"
    document = {"a": [1e-9, 2**-30], "b": 5.0, "c": {"d": "\N{LINE SEPARATOR}"}, "e": 'y: 1e-9"'}
    lines = ["a: [", "    1.0e-09,", "    9.313225746154785e-10", "  ]", "b: 5.0", "c: {", '    "d": "\\u2028"', "  }"]
    assert yaml(document).splitlines() == [*lines, 'e: "y: 1e-9\\""']
    # No two columns have one address.
    assert ids_of(["a b", "a_b", "a_b_3", "a,b"]) == ["a_b", "a_b_2", "a_b_3", "a_b_4"]
