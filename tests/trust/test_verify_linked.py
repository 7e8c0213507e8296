"""Model files of linked tables, as a stranger checks them: genuine ones pass, forged ones do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sklar
from sklar.budget.certificate import measurements
from sklar.budget.plan import plan_linked
from sklar.files.model import LinkedModel
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.rows.shares import LinkedRows, count_tokens
from sklar.trust.verify import verify
from tests.linked import small, tables


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    """Short fits: how good they are is another test's business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sklar.fitting.classes.MAX_STEPS", 40)
        yield


@pytest.fixture(scope="module")
def model() -> LinkedModel:
    return sklar.fit_linked(*tables(), small(), epsilon=2.0)


def test_a_genuine_file_passes(model: LinkedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "m.sklar")
    found = verify(tmp_path / "m.sklar", refit=True)
    assert found.passed, found.lines()
    assert [check.name for check in found.checks] == [
        *("format", "layout", "schema", "people", "measurements", "arrays", "theorem", "independent", "noise", "refit")
    ]
    assert found.independent_epsilon is not None
    assert 1.9 < found.independent_epsilon <= 2.0
    assert "any one person, with all their events" in "\n".join(found.lines())
    assert found.to_dict()["certificate"]["unit"] == "person"


def test_a_genuine_file_of_unknown_size_passes(tmp_path: Path) -> None:
    made = sklar.fit_linked(*tables(), small(), Budget(epsilon=2.0, neighbors="add-remove"))
    made.save(tmp_path / "m.sklar")
    found = verify(tmp_path / "m.sklar")
    assert found.passed, found.lines()
    assert "whether any one person, with all their events, is in the tables" in "\n".join(found.lines())


def failed(model: LinkedModel, path: Path, *, refit: bool = False) -> set[str]:
    model.save(path)
    return {check.name for check in verify(path, refit=refit).checks if not check.passed}


def test_forged_files_fail(model: LinkedModel, tmp_path: Path) -> None:
    measured = model.measured
    lower = replace(measured.certificate, epsilon=1.9)
    made = replace(model, measured=replace(measured, certificate=lower))
    assert failed(made, tmp_path / "m.sklar") == {"theorem", "independent"}

    blocks = tuple(replace(block, scales=block.scales * (1 + 1e-9)) for block in measured.blocks)
    odd = replace(measured.certificate, measurements=measurements(blocks, measured.certificate.budget))
    made = replace(model, measured=replace(measured, blocks=blocks, certificate=odd))
    assert failed(made, tmp_path / "m.sklar") == {"arrays"}

    person = np.roll(model.classes.person[:, :2], 1, axis=1)
    moved = replace(model.classes, person=np.hstack([person, model.classes.person[:, 2:]]).astype(np.float32))
    assert failed(replace(model, classes=moved), tmp_path / "m.sklar", refit=True) == {"refit"}


def test_exact_counts_are_found(tmp_path: Path) -> None:
    """Of people with eight attributes: two would be too few to tell."""
    people, events = tables()
    wide = people.select("id", *(((people["id"] // 2**bit) % 2 == 1).alias(f"x{bit}") for bit in range(8)))
    eight = "".join(f'[attributes.x{bit}]\ntype = "boolean"\n' for bit in range(8))
    linked = replace(small(), people=Schema.from_toml(eight))
    made = sklar.fit_linked(wide, events, linked, epsilon=1.0)
    assert failed(made, tmp_path / "m.sklar") == set()
    joined = LinkedRows(wide, events, linked).join()
    exact = count_tokens(joined, linked, plan_linked(linked, made.certificate.budget))
    bare = tuple(replace(block, values=own) for block, own in zip(made.measured.blocks, exact, strict=True))
    assert failed(replace(made, measured=replace(made.measured, blocks=bare)), tmp_path / "m.sklar") == {"noise"}


def test_a_file_with_bytes_of_its_own_fails(model: LinkedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "m.sklar")
    content = (tmp_path / "m.sklar").read_bytes()
    (tmp_path / "m.sklar").write_bytes(b"hidden" + content)
    assert not verify(tmp_path / "m.sklar").passed
