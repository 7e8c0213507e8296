"""The public face: exported names, lazy imports, one version."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sklar
from tests.cli.test_loads import HEAVY, loaded_by

ROOT = Path(__file__).parent.parent


def test_exported_names_are_sorted_and_resolve_and_no_others_do() -> None:
    assert sklar.__all__ == sorted(sklar.__all__)
    for name in sklar.__all__:
        assert getattr(sklar, name).__name__ == name
    assert set(sklar.__all__) < set(dir(sklar))
    with pytest.raises(AttributeError, match="module 'sklar' has no attribute 'nonsense'"):
        sklar.nonsense  # noqa: B018


def test_the_version_is_the_projects_and_that_of_the_citation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sklar.__version__ == project["version"]
    assert f"\nversion: {sklar.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_wheel_says_that_it_is_typed_and_holds_the_templates(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert "sklar/py.typed" in held
    reports = {"answer/report/templates/style.css", "custodian/evaluate/templates/private.html.j2"}
    studio = {"studio/static/studio.js", "studio/templates/base.html.j2"}
    assert {f"sklar/{name}" for name in reports | studio} <= held


def test_importing_waits_for_nothing_heavy() -> None:
    """Nor does `sklar --help` (`tests/cli/test_loads.py`)."""
    assert not loaded_by("import sklar") & HEAVY


def test_an_audit_shares_nothing_with_the_process_that_asks_for_it() -> None:
    """It used to replace the noise of the whole process: a fit beside it returned exact counts, certified."""
    # What is started in its place finds nothing, and says so with an error.
    loaded = loaded_by(
        "from sklar.cli import cli\nfrom sklar.errors import NoiseError\nfrom sklar.trust.audit import audit\n"
        "sys.executable = 'true'\ntry:\n    audit(quick=True)\nexcept NoiseError:\n    pass\nelse:\n    raise TypeError"
    )
    assert "sklar.trust.audit" in loaded
    attacked = {"sklar.trust.audit.noises", "sklar.release", "sklar.kernel.vault", "sklar.kernel.noise", "numba"}
    assert not loaded & attacked


@pytest.mark.parametrize(("method", "more"), [("auto", set()), ("binary", {"numba", "scipy"})])
def test_a_release_loads_nothing_heavy_that_it_can_do_without(tmp_path: Path, method: str, more: set[str]) -> None:
    """Of Parquet; `tests/cli/test_loads.py` has CSV."""
    source, target = str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")
    columns: dict[str, Any] = {"seen": [True, False, None], "age": [3, 40, None], "place": ["north", "south", None]}
    pq.write_table(pa.table(columns | {"day": [dt.date(2020, 1, 2), None, dt.date(2021, 3, 4)]}), source)
    text = """
        attributes.seen = {type = "boolean", missing = "-"}
        attributes.age = {type = "integer", edges = [0, 18, 65], missing = "-"}
        attributes.place = {type = "categorical", values = ["north", "south"], missing = "-"}
        attributes.day = {type = "date", edges = ["2020-01-01", "2021-01-01", "2022-01-01"], missing = "-"}
    """
    fit = f"sklar.fit({source!r}, sklar.Schema.from_toml({text!r}), epsilon=1.0, method={method!r})"
    loaded = loaded_by(f"import sklar\nmodel = {fit}\nmodel.save({target[:-8]!r} + '.sklar')\nmodel.write({target!r})")
    assert loaded & HEAVY <= {"numpy", "polars", "nanoarrow", "cryptography"} | more
    assert not loaded & {"scipy.stats", "scipy.optimize"}
    assert Path(target).exists()
