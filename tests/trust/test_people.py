"""Attacks by whole people, and verification of what is claimed for them, of linked tables as well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sklar
from sklar.budget.certificate import measurements
from sklar.budget.method import PAPER
from sklar.files.model import Model, TreeModel
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.public.tree import Tree
from sklar.trust.audit.by_kind import LOOSE, attack_cost, attack_guess
from sklar.trust.audit.inventions import whole_numbers
from sklar.trust.audit.kinds import rows_of
from sklar.trust.verify import verify
from tests.linked import exact_of, small, tables
from tests.trust.forge import failed


def test_noise_for_one_row_is_flagged_where_people_have_several() -> None:
    """By what a person of eight rows costs, and by 150 guesses that are nearly all right."""
    kind = rows_of("", (2,) * 8, 24, LOOSE, 8, PAPER)
    blind = replace(kind, schema=whole_numbers(*[2] * 8))
    here, there = ([blind.measure(which) for _ in range(75)] for which in (0, 1))
    cost, guess = attack_cost(blind, here), attack_guess(blind, here, there)
    assert not cost.passed
    assert cost.measured > 5 * LOOSE.epsilon
    assert not guess.passed


def test_a_release_for_people_is_verified(genuine: dict[str, Path]) -> None:
    """With a refit, which plans again for as many rows of a person as are counted."""
    found, model = verify(genuine["people"], refit=True), sklar.load(genuine["people"])
    assert found.passed, found.lines()
    assert [check.name for check in found.checks][-2:] == ["plan", "refit"]
    checks = {check.name: check.detail for check in found.checks}
    assert checks["unit"].startswith("any one person, with all their rows; counted are rows: at most 4")
    assert "what all rows of any one person hold (the number of people is public)" in "\n".join(found.lines())
    assert "several rows about one person" not in "\n".join(found.lines())
    assert any("any one person, with all their rows" in line for line in model.summary())
    assert "id" not in model.sample(10).columns


def failed_of(model: Model, folder: Path, *, refit: bool = False) -> set[str]:
    model.save(folder / "m.sklar")
    return failed(verify(folder / "m.sklar", refit=refit))


@pytest.fixture(scope="module")
def linked() -> TreeModel:
    model = sklar.fit(tables(), small(), epsilon=2.0)
    assert isinstance(model, TreeModel)
    return model


def test_linked_tables_are_verified(linked: TreeModel, tmp_path: Path) -> None:
    linked.save(path := tmp_path / "m.sklar")
    found = verify(path, refit=True)
    assert found.passed, found.lines()
    assert found.independent_epsilon is not None
    assert 1.9 < found.independent_epsilon <= 2.0
    assert "any one person, with all their rows" in "\n".join(found.lines())
    assert found.to_dict()["certificate"]["count"] == "everyone"
    path.write_bytes(b"hidden" + path.read_bytes())
    assert not verify(path).passed
    sklar.fit(tables(), small(), Budget(epsilon=2.0, neighbors="add-remove")).save(path)
    found = verify(path)
    assert found.passed, found.lines()
    assert "whether any one person, with all their rows, is in the tables" in "\n".join(found.lines())


def test_forged_linked_tables_fail(linked: TreeModel, tmp_path: Path) -> None:
    measured = linked.measured
    lower = replace(measured.certificate, epsilon=1.9)
    made = replace(linked, measured=replace(measured, certificate=lower))
    assert failed_of(made, tmp_path) == {"theorem", "independent"}

    blocks = tuple(replace(block, scales=block.scales * (1 + 1e-9)) for block in measured.blocks)
    odd = replace(measured.certificate, measurements=measurements(blocks, measured.certificate.budget))
    made = replace(linked, measured=replace(measured, blocks=blocks, certificate=odd))
    assert failed_of(made, tmp_path) == {"arrays"}

    moved = replace(linked.copula, probabilities=np.roll(linked.copula.components(), 5, axis=0))  # type: ignore[type-var]
    assert failed_of(replace(linked, copula=moved), tmp_path, refit=True) == {"refit"}


def test_exact_counts_are_found(tmp_path: Path) -> None:
    """Of people with eight attributes: two would be too few to tell."""
    frames, (root, below) = tables(), small().branches
    own = ((frames["people"]["id"] // 2**bit % 2 == 1).alias(f"x{bit}") for bit in range(8))
    frames["people"] = frames["people"].select("id", *own)
    eight = Schema.from_toml("".join(f'[attributes.x{bit}]\ntype = "boolean"\n' for bit in range(8)))
    wider = Tree(branches=(replace(root, schema=eight), below))
    made = sklar.fit(frames, wider, epsilon=1.0)
    assert failed_of(made, tmp_path) == set()
    exact = exact_of(wider, frames)
    names = [getattr(block.query, "what", getattr(block.query, "order", 0)) for block in made.measured.blocks]
    pairs = zip(made.measured.blocks, names, strict=True)
    bare = tuple(replace(block, values=exact[name]) if name in exact else block for block, name in pairs)
    assert failed_of(replace(made, measured=replace(made.measured, blocks=bare)), tmp_path) == {"noise"}
