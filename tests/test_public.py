"""The public face: exported names, lazy imports, one version."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import sklar

ROOT = Path(__file__).parent.parent


def test_exported_names_are_sorted_and_resolve() -> None:
    assert sklar.__all__ == sorted(sklar.__all__)
    for name in sklar.__all__:
        assert getattr(sklar, name).__name__ == name
    assert set(sklar.__all__) < set(dir(sklar))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sklar' has no attribute 'nonsense'"):
        sklar.nonsense  # noqa: B018


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sklar.__version__ == project["version"]


def test_the_wheel_says_that_it_is_typed(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "sklar/py.typed" in archive.namelist()


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("statement", ["import sklar", "from sklar.cli import cli"])
def test_importing_waits_for_nothing_heavy(statement: str) -> None:
    heavy = {
        "pyspark",
        "pandas",
        "numba",
        "numpy",
        "scipy",
        "scipy.stats",
        "pyarrow",
        "pyarrow.dataset",
        "cryptography",
        "rich.progress",
    }
    assert not loaded_by(statement) & heavy


def test_a_release_loads_neither_scipy_stats_nor_pyarrow_dataset() -> None:
    statement = (
        "import pyarrow as pa, sklar\n"
        "schema = sklar.Schema.from_toml('[attributes.x]\\ntype = \"boolean\"')\n"
        "sklar.fit(pa.table({'x': [True, False]}), schema, epsilon=1.0).sample(2)"
    )
    assert not loaded_by(statement) & {"scipy.stats", "pyarrow.dataset", "matplotlib", "sklearn", "pyspark"}
