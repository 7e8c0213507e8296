"""What a machine has proven is about the code: definitions of `proofs` beside the kernel's; lemmas can fail."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import z3
from proofs import arithmetic, check, definitions

from sklar.kernel import noise, queries
from sklar.kernel.cells import Cells
from sklar.kernel.people import deal
from sklar.kernel.queries import PARTS, Distances, Shares, Tables, moved_sets, one_or_none
from sklar.kernel.theorems import Budget

TEXT = check.SOURCE.read_text()
README = (Path(check.SOURCE).parent / "README.md").read_text()


@pytest.mark.parametrize("make", arithmetic.LEMMAS, ids=lambda make: make.__name__)
def test_the_arithmetic_holds_for_all_numbers(make: object) -> None:
    assert callable(make)
    assert make().check() == "proven"


def test_a_lemma_can_fail() -> None:
    good = arithmetic.uniform()
    assert replace(good, claim=good.too_much).check() == "not proven"
    assert replace(good, too_much=good.claim).check() == "slack"
    assert replace(good, premises=[*good.premises, z3.Int("p") > 2**24]).check() == "empty"


def test_lemmas_are_about_the_constants_of_the_code() -> None:
    """Where one of these changes, its lemma must change with it."""
    assert (noise._V_LIMIT - 1, noise._K_LIMIT - 1, noise._LARGEST_SCALE) == (127, 63, 2**24)
    assert PARTS == 15
    budget = Budget(epsilon=1.0)
    bound = Distances(of=Tables(cells=Cells([2, 2, 2]), order=3), reference=np.zeros(8, dtype=np.int64)).bound(
        np.array([5.0]), budget
    )
    assert bound.reach.tolist() == [np.floor(15 * np.sqrt(2) + 1.3)]


def test_tables_are_those_of_the_proof() -> None:
    generator = np.random.default_rng(1)
    for _ in range(40):
        sizes = generator.integers(1, 5, size=3)
        # Some codes are no level: those of the proof are natural numbers.
        codes = generator.integers(0, 6, size=(3, 20))
        query = Tables(cells=Cells(sizes), order=3)
        rows = [definitions.place(0, sizes.tolist(), codes[:, row].tolist()) for row in range(20)]
        assert query.count(codes).tolist() == definitions.table(query.n_cells, rows)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_people_move_tables_by_no_more_than_is_proven_and_paid(neighbors: str) -> None:
    """`moves` times the square of `reach` is what `replaced` and `added` prove, and it is attained."""
    generator = np.random.default_rng(2)
    budget = Budget(epsilon=1.0, neighbors=neighbors, rows_per_person=4)  # type: ignore[arg-type]
    query = Tables(cells=Cells([3, 2]), order=2)
    spend = query.bound(np.array([8.0]), budget)
    most = float(spend.moves @ spend.reach**2)
    assert most == {"replace-one": 2 * 4**2, "add-remove": 4**2}[neighbors]
    # Four rows in one cell, and in another one: the worst that a person can do.
    worst = [np.full((2, 4), code) for code in (0, 1)]
    drawn = [generator.integers(-1, 3, size=(2, 4)) for _ in range(200)]
    seen = []
    for old, new in zip([worst[0], *drawn[::2]], [worst[1], *drawn[1::2]], strict=True):
        before = query.count(old).tolist() if neighbors == "replace-one" else []
        seen.append(definitions.apart(before, query.count(new).tolist()))
        assert definitions.steps(before, query.count(new).tolist()) <= float(spend.moves @ spend.reach)
    assert seen[0] == max(seen) == most


def test_parities_move_as_is_proven() -> None:
    generator = np.random.default_rng(3)
    for m in range(1, 8):
        counted = moved_sets(m)
        for _ in range(10):
            one, two = (generator.random(m) < 0.5 for _ in range(2))
            changed = int((one != two).sum())
            own = [definitions.moved(k, one.tolist(), two.tolist()) for k in (1, 2, 3)]
            assert counted[changed].tolist() == own


def test_tokens_are_dealt_as_is_proven() -> None:
    generator = np.random.default_rng(4)
    for _ in range(200):
        parts, each = generator.integers(0, 9, size=generator.integers(1, 6)), int(generator.integers(1, 50))
        found = deal(np.zeros_like(parts), parts, each).tolist()
        assert found == definitions.dealt(each, max(int(parts.sum()), 1), 0, parts.tolist())
        assert sum(found) == each * (parts.sum() > 0)
    assert Shares(what="any", lengths=np.array([3]), each=7).bound(
        np.array([9.0]), Budget(epsilon=1.0, rows_per_person=1)
    ).reach.tolist() == [7.0]


def test_distances_are_centered_as_is_proven() -> None:
    generator = np.random.default_rng(5)
    query = Distances(of=Tables(cells=Cells([3, 2, 4]), order=3), reference=np.zeros(24, dtype=np.int64))
    for _ in range(30):
        counts = generator.integers(0, 50, size=24)
        lines = counts.reshape(3, 2, 4).astype(object)
        for axis in range(3):
            moved = np.moveaxis(lines, axis, -1)
            centered = np.array([definitions.centered(line) for line in moved.reshape(-1, moved.shape[-1]).tolist()])
            lines = np.moveaxis(centered.reshape(moved.shape), -1, axis)
        norm = np.sqrt(float(sum(int(cell) ** 2 for cell in lines.ravel()))) / 24
        assert query.answer(counts).tolist() == [int(np.floor(PARTS * norm + 0.5))]


def test_a_code_is_narrowed_as_is_proven() -> None:
    codes = np.array([-(2**63), -1, 0, 6, 7, 2**31, 2**32, 2**32 + 3, 2**63 - 1])
    assert one_or_none(codes, 7).tolist() == [-1, -1, 0, 6, -1, -1, -1, -1, -1]
    assert queries.NO_CELL == -1


def test_the_page_names_the_theorems_that_are_there() -> None:
    theorems = set(re.findall(r"^Theorem (\w+)", TEXT, flags=re.MULTILINE))
    assert theorems == set(re.findall(r"^Print Assumptions (\w+)\.", TEXT, flags=re.MULTILINE)) | {
        "rows_sum_to_at_most",
        "moved_are_odd_sets",
    }
    assert theorems <= set(re.findall(r"`(\w+)`", README))
    assert {make().name for make in arithmetic.LEMMAS} <= set(re.findall(r"\*\*(.+?)\*\*", README))
    assert not re.search(r"\b(Axiom|Parameter|Admitted|admit|Conjecture)\b", TEXT)


@pytest.mark.skipif(shutil.which("coqc") is None, reason="needs Coq (apt-get install coq); make proofs")
def test_coq_accepts_the_proofs_and_refuses_a_wrong_one() -> None:
    assert check.coq(TEXT).count("Closed under the global context") == TEXT.count("Print Assumptions ")
    with pytest.raises(SystemExit):
        check.coq(TEXT.replace("apart u v <= 2 * (L * L)", "apart u v <= L * L"))


def test_every_claim_names_proofs_tests_and_attacks_that_exist() -> None:
    root = Path(__file__).parents[1]
    page = (root / "docs" / "claims.md").read_text()
    rows = [line.split(" | ") for line in page.split("## After NIST")[0].splitlines() if line.startswith("| ")][1:]
    theorems = set(re.findall(r"^Theorem (\w+)", TEXT, flags=re.MULTILINE))
    lemmas = {make().name for make in arithmetic.LEMMAS}
    attacks = (root / "docs" / "results" / "attacks.md").read_text()
    assert len(rows) >= 15
    used: set[str] = set()
    for _claim, proof, tests, tried in rows:
        for name in re.findall(r"`([\w/.]+)`", proof):
            used.add(name)
            assert name in theorems or (root / "src" / "sklar" / name).is_file(), name
        named = re.findall(r"z3: ([^;]+)", proof.replace("\\|", "|"))
        for name in [each.strip() for group in named for each in group.split(", ")]:
            used.add(name)
            assert name in lemmas, name
        for name in re.findall(r"`([\w/.]+)`", tests):
            assert (root / name).is_file(), name
        for name in tried.strip(" |").split(", "):
            assert f"\n| {name} |" in attacks, name
    # Nothing is proven that no claim needs.
    assert lemmas <= used
    assert theorems - used <= {"added", "rows_sum_to_at_most", "moved_are_odd_sets"}
