"""Planted flaws: each a small change to a copy of the package that breaks its privacy claim.

`make flaws` plants each and reports who catches it (`tests.flaws.run`). A change whose text is not found fails loudly:
whoever rewrites that text says here how the flaw looks now.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import sklar
from sklar.machine.compiled import cache_folder

PACKAGE = Path(sklar.__file__).parent
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Edit:
    """One text of one file replaced by another."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A flaw: what it does, how it is planted, and the tests that must notice it."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    audited: bool = True


_THEOREMS, _VAULT, _NOISE = "kernel/theorems.py", "kernel/vault.py", "kernel/noise.py"
_ADD = "            part += exact\n"
_DRAW = "return draw(scales * each, sizes, threads=self._threads, narrow=self._fits_32_bits(scales * each, sizes))"
_VAULT_TESTS = "tests/guarantees/test_noise_on_the_way.py"
_ROW_TESTS = "tests/guarantees/test_row_by_row.py"
_RELEASE_TESTS = "tests/guarantees/test_release_tells_nothing.py"


def _flaw(name: str, file: str, old: str, new: str, *tests: str, audited: bool = True) -> Flaw:
    return Flaw(name=name, edits=(Edit(file, old, new),), tests=tests, audited=audited)


FLAWS = (
    # Sensitivity and accounting.
    _flaw(
        "half the sensitivity",
        _THEOREMS,
        'return 2 if self.neighbors == "replace-one" else 1',
        "return 1",
        "tests/kernel/test_theorems.py",
    ),
    _flaw(
        "half the cost on the Gaussian curve",
        _THEOREMS,
        "bounds.append(curve_epsilon(_sum_up(shifts / variances), delta))",
        "bounds.append(curve_epsilon(_sum_up(shifts / variances) / 2, delta))",
        "tests/kernel/test_theorems.py",
    ),
    _flaw(
        "a larger delta than the one that is stated",
        _THEOREMS,
        "settings = (self.mechanism, self.composition, self.shifts, self.rows, delta)",
        "settings = (self.mechanism, self.composition, self.shifts, self.rows, max(delta, 1e-5))",
        "tests/kernel/test_theorems.py",
    ),
    Flaw(
        name="half the shifts of Laplace noise",
        edits=(
            Edit(
                _THEOREMS,
                "return laplace_epsilon(_per_row(values, rows), counts * shifts, delta)",
                "return laplace_epsilon(_per_row(values, rows), counts, delta)",
            ),
            Edit(
                _THEOREMS,
                "laplace_delta(self.epsilon, scales, shape.tables * self.shifts)",
                "laplace_delta(self.epsilon, scales, shape.tables)",
            ),
        ),
        tests=("tests/kernel/test_theorems.py",),
    ),
    _flaw(
        "a threshold's chance off by one",
        _THEOREMS,
        "math.exp(log_ndtr(-(threshold - 1 - count) / scale))",
        "math.exp(log_ndtr(-(threshold - count) / scale))",
        "tests/budget/test_search.py",
    ),
    Flaw(
        name="a table measured twice and charged once",
        edits=(
            Edit(
                _VAULT,
                "spent = self._spent + (Spend.of(scales, lost_delta=lost_delta) if spend is None else spend)",
                "spent = Spend.of(scales, lost_delta=lost_delta) if spend is None else spend",
            ),
            Edit(
                "release.py",
                "for _ in range(stages.looks))",
                "for _ in range(stages.looks + 1))",
            ),
            Edit("release.py", "[tables.plan for tables in noisy]", "[tables.plan for tables in noisy[1:]]"),
        ),
        tests=("tests/kernel/test_vault.py", "tests/test_release.py"),
    ),
    # Noise.
    _flaw(
        "seven tenths of the noise",
        _VAULT,
        _DRAW,
        "return draw((0.7 * scales * each).astype(np.float32).astype(np.float64), sizes, threads=self._threads)",
        _VAULT_TESTS,
    ),
    _flaw("noise on seen cells only", _VAULT, _ADD, "            part[exact == 0] = 0\n" + _ADD, _VAULT_TESTS),
    _flaw(
        "no noise on cells of more than 1,000 rows",
        _VAULT,
        _ADD,
        "            part[exact > 1000] = 0\n" + _ADD,
        _VAULT_TESTS,
    ),
    _flaw(
        "one noise for all cells",
        _VAULT,
        _ADD,
        "            part[:] = part[:1] if part.size else part\n" + _ADD,
        _VAULT_TESTS,
    ),
    _flaw("noise that is always even", _VAULT, _DRAW, _DRAW + " // 2 * 2", _VAULT_TESTS),
    _flaw(
        "noise that is cut at three deviations",
        _VAULT,
        _DRAW,
        "reach = np.repeat(3 * scales * each, sizes).astype(np.int64)\n"
        f"        return np.clip({_DRAW[7:]}, -reach, reach)",
        _VAULT_TESTS,
    ),
    _flaw(
        "a retry that draws again below zero",
        _VAULT,
        _ADD,
        _ADD + "            low = part < 0\n"
        '            draw = discrete_gaussian if self._budget.mechanism == "gaussian" else discrete_laplace\n'
        "            part[low] = exact[low] + draw(plan.scales[:1], np.array([int(low.sum())]))\n",
        _VAULT_TESTS,
    ),
    Flaw(
        name="stage two reuses the noise of stage one",
        edits=(
            Edit(_VAULT, '"_threads", "_trios")', '"_threads", "_trios", "_old")'),
            Edit(
                _VAULT,
                "        noisy = np.split(self._draw(plan.scales, np.concatenate(sizes), spend=plan.spend), ",
                "        every = np.repeat(plan.scales, np.concatenate(sizes))\n"
                "        fresh = self._draw(plan.scales, np.concatenate(sizes), spend=plan.spend)\n"
                '        if hasattr(self, "_old"):\n'
                "            fresh = np.rint(self._old[-fresh.size :] * every).astype(np.int64)\n"
                "        self._old = fresh / every\n"
                "        noisy = np.split(fresh, ",
            ),
        ),
        tests=(_VAULT_TESTS,),
    ),
    _flaw("a key that is always the same", _NOISE, "AES256(urandom(32))", "AES256(bytes(32))", _VAULT_TESTS),
    _flaw(
        "a key that all calls of a process share",
        _NOISE,
        "def _keystream() -> _Source:",
        "_KEY = urandom(32)\n\n\ndef urandom(_count: int) -> bytes:\n    return _KEY\n\n\ndef _keystream() -> _Source:",
        _VAULT_TESTS,
    ),
    _flaw(
        "seeded noise",
        _NOISE,
        "from os import urandom\n",
        "from random import Random\n\nurandom = Random(1).randbytes\n",
        _VAULT_TESTS,
    ),
    Flaw(
        name="a key that all parts of a large table share",
        edits=(
            Edit(
                _NOISE,
                "    ends = np.cumsum(sizes)\n\n    def part",
                "    ends, key = np.cumsum(sizes), urandom(32)\n\n    def part",
            ),
            Edit(
                _NOISE,
                "draw(kind, scales[own], within, _keystream())",
                "draw(kind, scales[own], within, _keystream(key))",
            ),
            Edit(_NOISE, "def _keystream() -> _Source:", 'def _keystream(key: bytes = b"") -> _Source:'),
            Edit(_NOISE, "AES256(urandom(32))", "AES256(key or urandom(32))"),
        ),
        tests=(_VAULT_TESTS,),
    ),
    _flaw(
        "a coin that is a hair unfair",
        _NOISE,
        "        if n >= d:\n            return 1, at\n",
        "        if n > d:\n            return 1, at\n",
        "tests/kernel/test_noise.py",
        audited=False,
    ),
    _flaw(
        "long draws get a second chance at the end of a buffer",
        _NOISE,
        "words = np.concatenate([words[used:], source(used)])",
        "words = source(buffer_words).copy()",
        "tests/kernel/test_noise.py",
        audited=False,
    ),
    _flaw("a sampler that can be replaced", _NOISE, "\n\nseal(__name__)\n", "\n", "tests/kernel/test_vault.py"),
    # Reading, encoding, counting.
    _flaw(
        "data-dependent clipping above 1,000 rows",
        "rows/encode.py",
        "    codes = _looked_up(numbers, attribute)\n",
        "    if numbers.size > 1_000:\n"
        "        numbers = np.clip(numbers, *np.quantile(numbers, [0.01, 0.99]).astype(numbers.dtype))\n"
        "    codes = _looked_up(numbers, attribute)\n",
        _ROW_TESTS,
    ),
    _flaw(
        "encoding by a batch's median above 5,000 rows",
        "rows/encode.py",
        "    codes = _looked_up(numbers, attribute)\n",
        "    if numbers.size > 5_000:\n"
        "        numbers = np.where(numbers < attribute.edges[0], np.median(numbers), numbers).astype(numbers.dtype)\n"
        "    codes = _looked_up(numbers, attribute)\n",
        _ROW_TESTS,
    ),
    _flaw(
        "a null takes the value of the row before",
        "rows/encode.py",
        "    kind = column.dtype\n    if kind == pl.Null:\n",
        "    column = column if column.dtype == pl.Object else column.forward_fill()\n"
        "    kind = column.dtype\n    if kind == pl.Null:\n",
        _ROW_TESTS,
    ),
    _flaw(
        "an unknown value becomes the batch's most frequent one",
        "rows/encode.py",
        "    # A null's number is past all others; clipping is faster than checking.\n"
        '    return lookup.take(places, mode="clip")\n',
        '    codes = lookup.take(places, mode="clip")\n'
        "    unknown = codes == unknown_code(attribute)\n"
        "    codes[unknown] = np.bincount(codes[codes >= 0], minlength=1).argmax()\n"
        "    return codes\n",
        _ROW_TESTS,
    ),
    _flaw(
        "a long text raises an error that quotes it",
        "rows/encode.py",
        "        text = text_of(value)\n        code = known.get(text)\n",
        "        text = text_of(value)\n"
        "        if len(text) > 1_000:\n"
        "            from sklar.errors import DataError\n\n"
        "            raise DataError(f\"the text '{text[:20]}...' is too long.\")\n"
        "        code = known.get(text)\n",
        _ROW_TESTS,
    ),
    _flaw(
        "the row at the end of a batch is read twice",
        "rows/source.py",
        "batch.slice(start, rows)",
        "batch.slice(start, rows + 1)",
        _ROW_TESTS,
    ),
    _flaw(
        "a row counted twice",
        "kernel/queries.py",
        "counts.append(np.bincount(place[inside], minlength=math.prod(shape)))",
        "counts.append(2 * np.bincount(place[inside], minlength=math.prod(shape)))",
        "tests/rows/test_engines.py",
    ),
    _flaw(
        "a batch counted twice by compiled code",
        "rows/count.py",
        "            together(_call, compiled.jobs())\n",
        "            together(_call, compiled.jobs())\n            together(_call, compiled.jobs())\n",
        "tests/rows/test_count.py",
    ),
    _flaw(
        "the number of rows leaves out rows without a value",
        "rows/count.py",
        "            rows = total.n_rows + batch.height\n",
        "            rows = total.n_rows + batch.drop_nulls().height\n",
        _ROW_TESTS,
    ),
    _flaw(
        "a file counted twice after an interruption",
        "rows/checkpoint.py",
        "rest, together = [shard for shard in shards if shard not in covered], ",
        "rest, together = list(shards), ",
        "tests/rows/test_checkpoint.py",
    ),
    _flaw(
        "exact counts left behind",
        "rows/checkpoint.py",
        "        _forget(folder)\n    return total",
        "    return total",
        "tests/rows/test_checkpoint.py",
    ),
    _flaw(
        "exact counts that others may read",
        "rows/checkpoint.py",
        "fresh_file(folder / _FILE, private=True)",
        "fresh_file(folder / _FILE)",
        "tests/rows/test_checkpoint.py",
    ),
    # The search for private domains.
    _flaw(
        "common categories without noise",
        _VAULT,
        "(counts + noise).tolist()",
        "np.where(counts > 100, counts, counts + noise).tolist()",
        _VAULT_TESTS,
    ),
    _flaw(
        "a threshold off by one",
        _VAULT,
        "if count >= threshold}",
        "if count >= threshold - 1}",
        _VAULT_TESTS,
    ),
    _flaw(
        "a tripled top grid cell",
        "rows/discover.py",
        "        return np.diff(upto[np.searchsorted(values, edges)])\n",
        "        counts = np.diff(upto[np.searchsorted(values, edges)])\n"
        "        counts[-1] *= 3\n"
        "        return counts\n",
        _ROW_TESTS,
    ),
    _flaw(
        "the coarsest grid without noise",
        "rows/engines.py",
        "        tables.append(block.values)\n",
        "        block = block if tables else replace(block, values=counts)\n        tables.append(block.values)\n",
        _VAULT_TESTS,
    ),
    # Parities of bits.
    _flaw(
        "parities priced by the row that changes one bit",
        "kernel/parities.py",
        "    worst = moved[int(np.argmax(moved @ scales**-2.0))]\n",
        "    worst = moved[1]\n",
        "tests/kernel/test_parities.py",
    ),
    _flaw(
        "parities of triples without noise",
        _VAULT,
        "            trios=noisy[3],\n",
        "            trios=trios + 0,\n",
        "tests/kernel/test_parities.py",
    ),
    _flaw(
        "parities of rows that have no level counted twice",
        _VAULT,
        "ones[first] + ones[second] - 2 * counts.pairs[3::4]",
        "ones[first] + ones[second] - counts.pairs[3::4]",
        "tests/kernel/test_parities.py",
    ),
    # Three-way tables.
    _flaw(
        "three-way tables without noise",
        _VAULT,
        "counts=exact + self._draw(scales, triples.sizes), scales=scales)",
        "counts=exact + 0 * self._draw(scales, triples.sizes), scales=scales)",
        "tests/kernel/test_triples.py",
    ),
    Flaw(
        name="three-way tables that nobody pays for",
        edits=(
            Edit(
                _VAULT,
                "counts=exact + self._draw(scales, triples.sizes), scales=scales)",
                "counts=exact + discrete_gaussian(scales, triples.sizes), scales=scales)",
            ),
            Edit(
                "budget/plan.py",
                "    pairs *= (reserve - cost.sum()) / pairs.sum()\n"
                "    scales = matched_scales(np.concatenate([cost, pairs]) ** -0.5, Spend.of(stages.reserve))\n",
                "    pairs *= reserve / pairs.sum()\n"
                "    scales = np.float32(np.concatenate([cost, pairs]) ** -0.5).astype(np.float64)\n",
            ),
            Edit("budget/certificate.py", "search_spend(findings) + third))", "search_spend(findings)))"),
        ),
        tests=("tests/kernel/test_triples.py", "tests/budget/test_plan.py"),
    ),
    Flaw(
        name="three-way tables chosen by exact counts",
        edits=(
            Edit(
                "release.py",
                "            found = look_for_triples(estimates, schema, stages, third.score)\n",
                "            held = vault._held\n"
                "            bare = replace(noisy[0], one_way=held.one_way.copy(), pairs=held.pairs.copy())\n"
                "            found = look_for_triples(pool((bare,)), schema, stages, third.score)\n",
            ),
        ),
        tests=("tests/test_third_stage.py::test_the_audit_finds_nothing_here",),
    ),
    _flaw(
        "rows counted twice in three-way tables",
        "kernel/count.py",
        "        counts.append(np.bincount(places, minlength=int(np.prod(shape))))\n",
        "        counts.append(2 * np.bincount(places, minlength=int(np.prod(shape))))\n",
        "tests/kernel/test_triples.py",
    ),
    # Scores of three-way tables.
    _flaw(
        "scores with the noise of a table",
        _VAULT,
        "np.array([number]), each=SCORE_MOVES, spend=",
        "np.array([number]), spend=",
        "tests/kernel/test_scores.py",
    ),
    _flaw(
        "scores by lengths that are no projection's",
        "kernel/count.py",
        "norm = np.sqrt(np.sum(np.square(centered, dtype=np.float64))) / table.size\n",
        "norm = np.sqrt(np.sum(np.square(centered, dtype=np.float64)))\n",
        "tests/kernel/test_scores.py",
    ),
    Flaw(
        name="scores that nobody pays for",
        edits=(
            Edit(_VAULT, "spend=Spend.of([scale], [number])", "spend=Spend.of([])"),
            Edit("kernel/triples.py", "return Spend.of([self.scale], [self.scores.size])", "return Spend.of([])"),
            Edit(
                "budget/plan.py",
                "    return scale, Stages(first=stages.first, reserve=scales[number:].copy())\n",
                "    return scale, stages\n",
            ),
        ),
        tests=("tests/kernel/test_scores.py", "tests/budget/test_plan.py"),
    ),
    # What else is released, and what it is made from.
    _flaw(
        "the number of rows leaks under add-remove",
        _VAULT,
        "return self._held.n_rows if self.rows_are_public else None",
        "return self._held.n_rows",
        _RELEASE_TESTS,
    ),
    _flaw(
        "the number of rows without noise under add-remove",
        _VAULT,
        "            total=int(noisy[0][0]) if total.size else None,\n",
        "            total=int(total[0]) if total.size else None,\n",
        _VAULT_TESTS,
    ),
    _flaw(
        "a plan by the exact number of rows",
        "release.py",
        "        n_rows=vault.n_rows,\n        rest=rest,\n",
        "        n_rows=vault._held.n_rows,\n        rest=rest,\n",
        _RELEASE_TESTS,
    ),
    Flaw(
        name="a second plan by exact counts",
        edits=(
            Edit(
                "release.py",
                "        estimates = pool(noisy)\n        distances",
                "        held = vault._held\n"
                "        bare = replace(noisy[0], one_way=held.one_way.copy(), pairs=held.pairs.copy())\n"
                "        estimates = pool((bare,))\n        distances",
            ),
        ),
        tests=(_RELEASE_TESTS,),
    ),
    Flaw(
        name="a model fitted to exact counts",
        edits=(
            Edit(
                "release.py",
                "    return fit_tables(measured, method=method, progress=progress)\n",
                "    bare = measure(data, schema, Budget(epsilon=1e9), method=method)\n"
                "    return replace(fit_tables(bare, method=method, progress=progress), measured=measured)\n",
            ),
        ),
        tests=(_RELEASE_TESTS,),
    ),
    # Ledger, files, machine.
    Flaw(
        name="a ledger charged for the first stage only",
        edits=(
            Edit("release.py", "vault.reserve(stages.spend)", "vault.reserve(stages.first.spend)"),
            Edit(
                _VAULT,
                "if not self._reserved.covers(self._budget.cost(spent)):",
                "if self._reserved.rho < 0:",
            ),
        ),
        tests=("tests/budget/test_ledger.py", "tests/kernel/test_vault.py"),
    ),
    _flaw(
        "a ledger that lets half as much more out",
        "budget/account.py",
        "limit = account.epsilon * (1 + ROUNDING)",
        "limit = account.epsilon * 1.5",
        "tests/budget/test_ledger.py",
    ),
    _flaw(
        "a refusal of the ledger that is ignored",
        _VAULT,
        "            self._charge(spend)\n",
        "            try:\n                self._charge(spend)\n"
        "            except BudgetError:\n                pass\n",
        _RELEASE_TESTS,
    ),
    _flaw(
        "private files that others may read",
        "files/write.py",
        "temporary = fresh_file(path, private=private)",
        "temporary = fresh_file(path)",
        "tests/guarantees/test_leaks.py::test_what_the_custodian_alone_may_see_is_a_file_of_the_owner_alone",
        audited=False,
    ),
    _flaw(
        "compiled code from a folder that others write to",
        "machine/compiled.py",
        "    try:\n        facts = folder.lstat()\n",
        "    if folder.exists():\n        return True\n    try:\n        facts = folder.lstat()\n",
        "tests/machine/test_compiled.py",
        audited=False,
    ),
    _flaw(
        "run times in a log file",
        "cli/console.py",
        'Lines(timings=is_given("timings"))',
        "Lines(timings=True)",
        "tests/guarantees/test_timings.py",
        audited=False,
    ),
)


def flawed_texts(flaw: Flaw) -> dict[str, str]:
    """The files that the flaw changes, by their place in the package, with the flaw in them."""
    texts: dict[str, str] = {}
    for edit in flaw.edits:
        text = texts.get(edit.file) or (PACKAGE / edit.file).read_text()
        if text.count(edit.old) != 1:
            raise AssertionError(f"{flaw.name}: the text to replace must stand in {edit.file} once: {edit.old!r}")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def plant(flaw: Flaw, folder: Path) -> Path:
    """A copy of the package with the flaw in it; returns the folder to put on the path."""
    copy = folder / "sklar"
    # With the bytecode of the files that stay as they are.
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*-pytest-*"))
    for file, text in flawed_texts(flaw).items():
        target = copy / file
        target.write_text(text)
        for kept in target.parent.glob(f"__pycache__/{target.stem}.*"):
            kept.unlink()
    _bring_compiled_code(copy, folder / "cache")
    return folder


def _bring_compiled_code(copy: Path, cache: Path) -> None:
    """What was compiled of the sound package, for the copy: numba names a folder by the path of the source's, and
    compiles what differs again."""
    cache.mkdir(mode=0o700)
    for room in (each for each in copy.rglob("*") if each.is_dir()):
        kept = (cache_folder() or cache) / _cache_name(PACKAGE / room.relative_to(copy))
        if kept.is_dir():
            shutil.copytree(kept, cache / _cache_name(room))


def _cache_name(room: Path) -> str:
    return f"{room.name}_{hashlib.sha1(str(room).encode(), usedforsecurity=False).hexdigest()}"


def environment(folder: Path) -> dict[str, str]:
    """Settings under which Python finds the package of this folder."""
    ours = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    return dict(os.environ) | ours
