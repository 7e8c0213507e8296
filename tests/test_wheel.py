"""What is handed out: a wheel that anyone can build again to the last byte, and a list of what it needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sklar.cli.workshop import studio

ROOT = Path(__file__).parents[1]
CORE = ROOT / "requirements" / "core.txt"


def run(*command: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-m", *command], cwd=folder, check=True, capture_output=True)


def test_a_wheel_is_the_same_bytes_whoever_builds_it_and_when(tmp_path: Path) -> None:
    wheels = []
    for number, name in enumerate(("one", "another place")):
        copy = tmp_path / name
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for each in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / each, copy)
        for path in copy.rglob("*"):
            os.utime(path, (1_700_000_000 + 86_400 * number,) * 2)
        run("hatchling", "build", "-t", "wheel", "-d", str(copy / "dist"), folder=copy)
        (wheel,) = (copy / "dist").glob("*.whl")
        wheels.append((wheel.name, wheel.read_bytes()))
    assert wheels[0] == wheels[1]
    assert wheels[0][0].endswith("-py3-none-any.whl")


def test_the_bill_of_materials_names_every_locked_package(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py", reason="make lowest does not install it")
    made = []
    for name in ("one.json", "two.json"):
        options = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library", "--output-reproducible")
        run("cyclonedx_py", "requirements", str(CORE), *options, "-o", str(tmp_path / name), folder=tmp_path)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    bill = json.loads(made[0])
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "sklar")
    locked = dict(re.findall(r"^([a-z0-9_.-]+)==([^ ;\\]+)", CORE.read_text(), flags=re.MULTILINE))
    assert {each["name"]: each["version"] for each in bill["components"]} == locked
    assert "numpy" in locked


def test_recipes_ask_for_what_the_project_asks_for() -> None:
    yaml = pytest.importorskip("yaml", reason="make lowest does not install it")
    recipe = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = f"python{project['requires-python']}"
    assert [each.replace(" ", "") for each in recipe["requirements"]["run"]] == [python, *project["dependencies"]]
    assert recipe["context"]["version"] == project["version"]
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == project["scripts"]


def test_the_container_runs_a_command_that_exists_as_a_user_without_rights() -> None:
    lines = (ROOT / "packaging" / "Dockerfile").read_text().splitlines()
    (entry,) = (json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT"))
    assert lines.index("USER 10001") < next(i for i, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
    context = studio.make_context("studio", entry[2:])
    assert (context.params["port"], context.params["host"], context.params["browser"]) == (8642, "127.0.0.1", False)
    assert not context.params["beyond"]
