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


_THEOREMS, _VAULT, _NOISE, _QUERIES = "kernel/theorems.py", "kernel/vault.py", "kernel/noise.py", "kernel/queries.py"
_ENCODE, _COUNT, _ENGINES = "rows/encode.py", "rows/count.py", "rows/engines.py"
_VAULT_TESTS = "tests/guarantees/test_noise_on_the_way.py"
_ROW_TESTS = "tests/guarantees/test_row_by_row.py"
_RELEASE_TESTS = "tests/guarantees/test_release_tells_nothing.py"
_BOUND_TESTS = "tests/kernel/test_bounds.py"
_KERNEL_TESTS = "tests/kernel/test_vault.py"
_QUERY_TESTS = "tests/kernel/test_queries.py"
_THEOREM_TESTS = "tests/kernel/test_theorems.py"
_SEARCH_TESTS = "tests/budget/test_search.py"
_CHECKPOINT_TESTS = "tests/rows/test_checkpoint.py"
_JOINT_TESTS = "tests/guarantees/test_noise_together.py"
_STEER_TESTS = "tests/guarantees/test_steering.py"
_LOOKED_UP = "    codes = _looked_up(numbers, attribute)\n"
_OUTLOOK = "        outlook = look_ahead(blocks, schema, stages, measurer.n_rows, again=measurer.reads_again)\n"
_BARE = (
    "        exact = measurer._exact\n"
    '        bare = [replace(b, values=exact[b.query.order, b"", b""].astype(int)) for b in blocks]\n'
)


def _flaw(name: str, file: str, old: str, new: str, *tests: str, audited: bool = True) -> Flaw:
    return Flaw(name=name, edits=(Edit(file, old, new),), tests=tests, audited=audited)


def _added(before: str = "", after: str = "") -> Edit:
    """These lines before or after the one that adds noise to counts."""
    add = "        noisy += counts\n"
    return Edit(_VAULT, add, f"{before}{add}{after}")


def _noisy(name: str, *before: str, tests: tuple[str, ...] = (_VAULT_TESTS,)) -> Flaw:
    """Noise that these lines change before it is added."""
    return Flaw(name=name, edits=(_added("".join(f"        {line}\n" for line in before)),), tests=tests)


# A place of the vault's own, for flaws that remember what was drawn before.
_MEMORY = (
    Edit(_VAULT, '"_spent", "_threads")', '"_spent", "_threads", "_old")'),
    Edit(_VAULT, "        self._lock = Lock()\n", "        self._lock, self._old = Lock(), {}\n"),
)


def _joint(name: str, *lines: str, audited: bool = True) -> Flaw:
    """Noise that these lines make depend on other noise: `every` is the scale of each cell, `self._old` a memory."""
    lines = ("every = np.repeat(own, sizes)", *lines)
    edits = (*_MEMORY, _added("".join(f"        {line}\n" for line in lines)))
    return Flaw(name=name, edits=edits, tests=(_JOINT_TESTS,), audited=audited)


def _reused(name: str, pool: str, *, share: float = 1.0, rest: float = 0.0, audited: bool = True) -> Flaw:
    """The first block of a pool lends its noise to the others: `pool` names a block's pool, or none of them."""
    return _joint(
        name,
        f"pool = {pool}",
        "old = self._old.get(pool) if pool else None",
        "if pool and old is None:",
        "    self._old[pool] = noisy / every",
        "if old is not None:",
        "    k = min(old.size, noisy.size)",
        f"    noisy[:k] = np.rint({share} * old[:k] * every[:k] + {rest} * noisy[:k])",
        audited=audited,
    )


def _repeated(name: str, when: str) -> Flaw:
    """Within a block, every table repeats the noise of the first cells."""
    return _joint(
        name,
        f"if noisy.size and {when}:",
        "    within = np.concatenate([np.arange(size) for size in sizes])",
        "    noisy = np.rint((noisy / every)[within] * every).astype(np.int64)",
    )


_ORDER, _WHAT, _ABOUT = 'getattr(query, "order", -1)', 'getattr(query, "what", "")', 'getattr(query, "about", "")'
_EVENTS = '("person-event", "event-event", "number-event", "event", "two-events")'
_PARITY, _SCORE = '(type(query).__name__ == "Parities")', '(type(query).__name__ == "Distances")'
_CHOSEN = "        blocks += measurer.measure_all(outlook.plan(scores).parts) + scores\n"

FLAWS = (
    # Sensitivity and accounting.
    _flaw("half the sensitivity", _THEOREMS, '2 if self.neighbors == "replace-one" else 1', "1", _BOUND_TESTS),
    _flaw("rows of a person that nobody pays for", _THEOREMS, "number), self.rows", "number), 1", _BOUND_TESTS),
    _flaw(
        "half the cost on the Gaussian curve", _THEOREMS, "variances), delta", "variances) / 2, delta", _THEOREM_TESTS
    ),
    _flaw(
        "a larger delta than the one that is stated",
        _THEOREMS,
        "self.shifts, self.less(spend.lost_delta).delta)",
        "self.shifts, max(self.less(spend.lost_delta).delta, 1e-5))",
        _THEOREM_TESTS,
    ),
    _flaw(
        "half the shifts of Laplace noise",
        _THEOREMS,
        "return scales, spend.moves.astype(np.int64)\n",
        "return scales, spend.moves.astype(np.int64) // 2\n",
        "tests/kernel/test_people.py",
    ),
    _flaw(
        "a threshold's chance off by one", _THEOREMS, "threshold - 1 -", "threshold -", "tests/kernel/test_people.py"
    ),
    _flaw(
        "a reserve that binds in the cheaper currency alone",
        _THEOREMS,
        "all(not math",
        "any(not math",
        _KERNEL_TESTS,
        audited=False,
    ),
    _flaw(
        "thresholds whose chances are not reserved",
        _VAULT,
        "spent.lost_delta <= reserved.lost_delta * (1 + ROUNDING)",
        "True",
        _KERNEL_TESTS,
        audited=False,
    ),
    Flaw(
        name="a table measured twice and charged once",
        edits=(
            Edit(_VAULT, "spent = self._spent + bound", "spent = bound"),
            Edit("release.py", "range(stages.looks)", "range(stages.looks + 1)"),
        ),
        tests=(_KERNEL_TESTS, "tests/test_release.py"),
    ),
    _flaw(
        "a subclass of a query that is cheap",
        _VAULT,
        "type(query) not in QUERIES",
        "not isinstance(query, QUERIES)",
        _KERNEL_TESTS,
        audited=False,
    ),
    _flaw(
        "a sum that rounds both of a row's parts up",
        _COUNT,
        "np.sum((TOKENS - dealt) * times)",
        "np.sum((TOKENS - dealt + (way % whole > 0)) * times)",
        "tests/budget/test_clip.py",
        audited=False,
    ),
    # Noise.
    _flaw(
        "seven tenths of the noise",
        _VAULT,
        "draw(own, sizes, threads=self._threads, narrow=self._fits_32_bits(query, own))",
        "draw((0.7 * own).astype(np.float32).astype(np.float64), sizes, threads=self._threads)",
        _VAULT_TESTS,
    ),
    _noisy("noise on seen cells only", "noisy[counts == 0] = 0"),
    _noisy("no noise on cells of more than 1,000 rows", "noisy[counts > 1000] = 0"),
    _noisy("one noise for all cells", "noisy[:] = noisy[:1] if noisy.size else noisy"),
    _noisy("noise that is always even", "noisy = noisy // 2 * 2"),
    _noisy(
        "noise that is cut at three deviations",
        "reach = np.repeat(3 * own, sizes).astype(np.int64)",
        "noisy = np.clip(noisy, -reach, reach)",
    ),
    Flaw(
        name="a retry that draws again below zero",
        edits=(
            _added(
                after="        low = noisy < 0\n"
                "        noisy[low] = counts[low] + draw(own[:1], np.array([int(low.sum())]))\n"
            ),
        ),
        tests=(_VAULT_TESTS,),
    ),
    Flaw(
        name="stage two reuses the noise of stage one",
        edits=(
            Edit(_VAULT, '"_spent", "_threads")', '"_spent", "_threads", "_old")'),
            _added(
                "        every = np.repeat(own, sizes)\n"
                '        if hasattr(self, "_old") and self._old.size == noisy.size:\n'
                "            noisy = np.rint(self._old * every).astype(np.int64)\n"
                "        self._old = noisy / every\n"
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
            Edit(_NOISE, "    ends = np.cumsum(sizes)\n\n", "    ends, key = np.cumsum(sizes), urandom(32)\n\n"),
            Edit(_NOISE, "_draw(p, shift, _keystream(), gaussian", "_draw(p, shift, _keystream(key), gaussian"),
            Edit(_NOISE, "def _keystream() -> _Source:", 'def _keystream(key: bytes = b"") -> _Source:'),
            Edit(_NOISE, "AES256(urandom(32))", "AES256(key or urandom(32))"),
        ),
        tests=(_VAULT_TESTS,),
    ),
    _flaw("a coin that is a hair unfair", _NOISE, "n >= d", "n > d", "tests/kernel/test_noise.py", audited=False),
    _flaw("a sampler that can be replaced", _NOISE, "\n\nseal(__name__)\n", "\n", _KERNEL_TESTS),
    # Reading, encoding, counting.
    _flaw(
        "data-dependent clipping above 1,000 rows",
        _ENCODE,
        _LOOKED_UP,
        "    if numbers.size > 1_000:\n"
        "        numbers = np.clip(numbers, *np.quantile(numbers, [0.01, 0.99]).astype(numbers.dtype))\n" + _LOOKED_UP,
        _ROW_TESTS,
    ),
    _flaw(
        "encoding by a batch's median above 5,000 rows",
        _ENCODE,
        _LOOKED_UP,
        "    if numbers.size > 5_000:\n"
        "        numbers = np.where(numbers < attribute.edges[0], np.median(numbers), numbers).astype(numbers.dtype)\n"
        + _LOOKED_UP,
        _ROW_TESTS,
    ),
    _flaw(
        "a null takes the value of the row before",
        _ENCODE,
        "    kind, numbers = column",
        "    column = column if column.dtype == pl.Object else column.forward_fill()\n    kind, numbers = column",
        _ROW_TESTS,
    ),
    _flaw(
        "parts of moments are counted from the batch's first one",
        _ENCODE,
        "np.asarray(PARTS[attribute.kind](moments))",
        "np.asarray(PARTS[attribute.kind](moments - moments.min(initial=0)))",
        "tests/rows/test_moments.py",
    ),
    _flaw(
        "an unknown value becomes the batch's most frequent one",
        _ENCODE,
        "    return np.append(lookup, lookup.dtype.type(of_value(None))).take(places)\n",
        "    codes = np.append(lookup, lookup.dtype.type(of_value(None))).take(places)\n"
        "    unknown = codes == unknown_code(attribute)\n"
        "    codes[unknown] = np.bincount(codes[codes >= 0], minlength=1).argmax()\n"
        "    return codes\n",
        _ROW_TESTS,
    ),
    _flaw(
        "a long text raises an error that quotes it",
        _ENCODE,
        "        truth = attribute.truth_of(text)\n",
        "        if len(text) > 1_000:\n"
        "            from sklar.errors import DataError\n\n"
        "            raise DataError(f\"the text '{text[:20]}...' is too long.\")\n"
        "        truth = attribute.truth_of(text)\n",
        _ROW_TESTS,
    ),
    _flaw(
        "the row at the end of a batch is read twice", "rows/source.py", "start, rows)", "start, rows + 1)", _ROW_TESTS
    ),
    _flaw(
        "a batch counted twice by compiled code",
        _COUNT,
        "        together(call, self.jobs())\n",
        "        together(call, self.jobs())\n" * 2,
        "tests/rows/test_count.py",
    ),
    _flaw(
        "a file counted twice after an interruption",
        _ENGINES,
        "[shard for shard in shards if shard not in covered]",
        "list(shards)",
        _CHECKPOINT_TESTS,
    ),
    _flaw(
        "exact counts left behind",
        _ENGINES,
        "        (folder / _FILE).unlink(missing_ok=True)\n",
        "",
        _CHECKPOINT_TESTS,
    ),
    _flaw(
        "exact counts that others may read",
        _ENGINES,
        "(folder / _FILE, private=True)",
        "(folder / _FILE)",
        _CHECKPOINT_TESTS,
    ),
    _flaw(
        "the number of rows leaves out rows without a value",
        _COUNT,
        "replace(total, n_rows=rows, tables",
        "replace(total, n_rows=total.n_rows + min(int((each >= 0).sum()) for each in own.values()), tables",
        _ROW_TESTS,
    ),
    # The search for private domains.
    _flaw(
        "a tripled top grid cell",
        _COUNT,
        "return np.diff(upto[np.searchsorted(values, edges)])\n",
        "counts = np.diff(upto[np.searchsorted(values, edges)])\n        counts[-1] *= 3\n        return counts\n",
        _ROW_TESTS,
    ),
    _flaw(
        "the coarsest grid without noise",
        _ENGINES,
        "            tables.append(block.values)\n",
        "            block = block if tables else replace(block, values=counts)\n"
        "            tables.append(block.values)\n",
        _VAULT_TESTS,
    ),
    _flaw(
        "two rounds of a search lose the chance of one",
        _THEOREMS,
        "lost_delta=self.lost_delta + other.lost_delta",
        "lost_delta=max(self.lost_delta, other.lost_delta)",
        _SEARCH_TESTS,
        audited=False,
    ),
    _flaw(
        "a second round that nobody pays for",
        _VAULT,
        "spent = self._spent + bound",
        "spent = self._spent + (NOTHING if keys is not None and self._spent.lost_delta else bound)",
        _SEARCH_TESTS,
        audited=False,
    ),
    _flaw(
        "a second round that the reserve leaves out",
        "budget/search.py",
        "return search_spend(self.findings, budget) + self.second",
        "return search_spend(self.findings, budget)",
        _SEARCH_TESTS,
        audited=False,
    ),
    _noisy(
        "a second round with the noise of the first",
        "if keys is not None:",
        '    noisy = draw.__dict__.setdefault(f"{id(self)} {query.about}", noisy.copy()).copy()',
        tests=(_SEARCH_TESTS,),
    ),
    # Queries.
    _flaw(
        "a row counted twice",
        _QUERIES,
        "counts.append(np.bincount(place[inside]",
        "counts.append(2 * np.bincount(place[inside]",
        _QUERY_TESTS,
        "tests/rows/test_engines.py",
    ),
    _noisy("common categories without noise", "if keys is not None:", "    noisy[counts > 100] = 0"),
    _flaw("a threshold off by one", _QUERIES, "noisy >= self.threshold", "noisy >= self.threshold - 1", _VAULT_TESTS),
    _flaw(
        "common values under Laplace noise",
        _QUERIES,
        "threshold: int\n    gaussian_only: ClassVar[bool] = True",
        "threshold: int\n    gaussian_only: ClassVar[bool] = False",
        _QUERY_TESTS,
        audited=False,
    ),
    _flaw(
        "parities priced by the row that changes one bit",
        _QUERIES,
        "moved[int(np.argmax(moved @ scales**-2.0))]",
        "moved[1]",
        _BOUND_TESTS,
        audited=False,
    ),
    _flaw(
        "parities of people priced as those of rows",
        _QUERIES,
        "moves(scales), budget.rows",
        "moves(scales), 1",
        _BOUND_TESTS,
        audited=False,
    ),
    _flaw("parities of rows that have no level counted twice", _QUERIES, "- 2 * ones[1]", "- ones[1]", _QUERY_TESTS),
    _noisy(
        "three-way tables without noise",
        'noisy = noisy * (getattr(query, "order", 0) != 3)',
        tests=(_VAULT_TESTS, "tests/test_third_stage.py"),
    ),
    _flaw(
        "distances with the noise of a table",
        _QUERIES,
        "math.floor(PARTS * math.sqrt(budget.shifts) * budget.rows + 1.3))",
        "math.sqrt(budget.shifts) * budget.rows)",
        _BOUND_TESTS,
    ),
    _flaw(
        "distances of four attributes by three centerings",
        _QUERIES,
        "for axis, size in enumerate(shape):",
        "for axis, size in enumerate(shape[:3]):",
        _QUERY_TESTS,
        audited=False,
    ),
    _flaw(
        "distances of more cells than the proof of their rounding covers",
        _QUERIES,
        "self.of.sizes.max(initial=0) > MOST_APART",
        "False",
        _QUERY_TESTS,
        audited=False,
    ),
    _flaw(
        "distances by lengths that are no projection's", _QUERIES, "float64))) / table.size", "float64)))", _BOUND_TESTS
    ),
    _flaw(
        "people who deal more tokens than they have", _QUERIES, "rank < np", "rank <= np", _BOUND_TESTS, audited=False
    ),
    _flaw(
        "shares of people where neighbors differ in a row",
        _QUERIES,
        'self.per == "person" and budget.rows_per_person is None',
        "False",
        _QUERY_TESTS,
        audited=False,
    ),
    _flaw(
        "an exact answer that is not whole",
        _QUERIES,
        'flat.dtype.kind not in "iu" or not np.can_cast(flat.dtype, np.int64)',
        "False",
        _KERNEL_TESTS,
        audited=False,
    ),
    # What else is released, and what it is made from.
    _flaw(
        "three-way tables that nobody pays for",
        "budget/plan.py",
        "    second *= (reserve - third.sum()) / second.sum()\n"
        "    scales, pairs = np.split(_matched(np.concatenate([third, second]) ** -0.5, stages), [scales.size])\n",
        "    second *= reserve / second.sum()\n"
        "    every = np.float32(np.concatenate([third, second]) ** -0.5).astype(np.float64)\n"
        "    scales, pairs = np.split(every, [scales.size])\n",
        "tests/budget/test_plan.py",
    ),
    _flaw(
        "scores that nobody pays for",
        "budget/plan.py",
        "return scale, replace(stages, reserve=drawable(left * factor))",
        "return scale, stages",
        "tests/budget/test_plan.py",
    ),
    _flaw(
        "the number of rows leaks under add-remove",
        _VAULT,
        "self._rows if self._budget.rows_are_public else None",
        "self._rows",
        _RELEASE_TESTS,
    ),
    _noisy("the number of rows without noise under add-remove", "noisy = noisy * (counts.size != 1)"),
    _flaw(
        "a plan by the exact number of rows",
        "release.py",
        "n_rows=measurer.n_rows,\n        rest=",
        "n_rows=measurer._n_rows,\n        rest=",
        _RELEASE_TESTS,
    ),
    _flaw(
        "passes over different rows", _VAULT, "self._rows not in (None, n_rows)", "False", _KERNEL_TESTS, audited=False
    ),
    _flaw(
        "a second plan by exact counts",
        "release.py",
        _OUTLOOK,
        _BARE + _OUTLOOK.replace("blocks", "bare"),
        _RELEASE_TESTS,
    ),
    _flaw(
        "three-way tables chosen by exact counts",
        "release.py",
        _OUTLOOK,
        _BARE
        + _OUTLOOK
        + _OUTLOOK.replace("blocks", "bare").replace("outlook", "other")
        + "        outlook = replace(outlook, seen=other.seen)\n",
        _STEER_TESTS,
    ),
    _flaw(
        "a model fitted to exact counts",
        "release.py",
        "    return fit_tables(measured, method=method, progress=progress)\n",
        "    bare = measure(data, schema, Budget(epsilon=1e9), method=method)\n"
        "    return replace(fit_tables(bare, method=method, progress=progress), measured=measured)\n",
        _RELEASE_TESTS,
    ),
    # Noise that is right cell by cell and wrong together. The first six were missed before the tests of it.
    _reused("parities' second look is the first look's noise negated", _PARITY, share=-1.0),
    _repeated("three-way tables share noise", f"{_ORDER} == 3"),
    _reused("event tables of a linked release share noise", f"{_WHAT} in {_EVENTS}"),
    _flaw(
        "rows of people chosen anew in each pass",
        _ENGINES,
        "ask.prepare, self._secrets)",
        "ask.prepare, Secrets())",
        _JOINT_TESTS,
    ),
    Flaw(
        name="the delta of several searches counted once",
        edits=(
            Edit(_THEOREMS, "self.lost_delta + other.lost_delta", "max(self.lost_delta, other.lost_delta)"),
            Edit(
                "budget/search.py",
                "lost = math.fsum(finding.lost_delta for finding in findings)",
                "lost = max((finding.lost_delta for finding in findings), default=0.0)",
            ),
        ),
        tests=(_JOINT_TESTS,),
    ),
    _flaw(
        "the exact number of rows steers the third stage",
        "release.py",
        _OUTLOOK,
        _OUTLOOK.replace("measurer.n_rows", "measurer._n_rows"),
        _STEER_TESTS,
    ),
    _reused("half of the second look's noise is the first look's", f"{_ORDER} == 2", share=0.5, rest=0.866),
    _reused("the second look's noise is the first look's negated", f"{_ORDER} == 2", share=-1.0),
    _joint(
        "noise that sums to nothing in every table",
        "if noisy.size:",
        "    means = np.add.reduceat(noisy, np.cumsum(sizes) - sizes) / sizes * (sizes > 1)",
        "    noisy -= np.repeat(np.rint(means).astype(np.int64), sizes)",
    ),
    _joint(
        "noise of neighboring cells that cancels",
        "noisy[1::2] = np.rint(-(noisy / every)[: noisy.size // 2 * 2 : 2] * every[1::2])",
    ),
    _joint(
        "a block's noise mirrored in its middle",
        "half = noisy.size // 2",
        "noisy[noisy.size - half :] = np.rint((noisy / every)[:half][::-1] * every[noisy.size - half :])",
    ),
    _joint(
        "a cell shares half of its noise with the next",
        "both = (noisy / every + np.roll(noisy / every, 1)) / np.sqrt(2)",
        "noisy = np.rint(both * every).astype(np.int64)",
    ),
    _reused(
        "linked tables of people and of events cancel", f'{_WHAT} in ("person-person", "person-event")', share=-1.0
    ),
    _reused("scores with the noise of one-way tables", f"{_SCORE} or {_ORDER} == 1"),
    _reused("tables of one search share noise", f"keys is None and {_ABOUT}"),
    _reused("searches cancel one another", f'keys is None and {_ABOUT} and "all"', share=-1.0),
    _reused("common values and one-way tables share noise", f"keys is not None or ({_ORDER} == 1 and not {_ABOUT})"),
    _reused("the number of rows and a cell cancel", f"{_ORDER} in (0, 1)", share=-1.0),
    _reused("the second look at the number of rows cancels the first", f"{_ORDER} == 0", share=-1.0),
    _joint("noise whose sign tells whether a count is odd", "noisy = np.abs(noisy) * np.where(counts % 2, 1, -1)"),
    _joint(
        "noise drawn again until two looks agree",
        f"if {_ORDER} == 2:",
        "    old = self._old.get(0)",
        "    for _ in range(0 if old is None else 9):",
        "        far = np.abs(noisy + counts - old) > every",
        "        noisy[far] = draw(own, sizes)[far]",
        "    self._old[0] = noisy + counts",
    ),
    _joint(
        "two-way tables of one attribute share noise",
        f"if {_ORDER} == 2:",
        "    first, ends = {}, np.cumsum(sizes)",
        "    for (one, _), begin, size in zip(query.members.tolist(), ends - sizes, sizes, strict=True):",
        "        unit = first.setdefault(one, (noisy / every)[begin : begin + size])[:size]",
        "        noisy[begin : begin + unit.size] = np.rint(unit * every[begin])",
    ),
    _joint(
        "parities of pairs have the noise of ones negated",
        f"if {_PARITY}:",
        "    k = min(sizes[0], sizes[1])",
        "    noisy[sizes[0] : sizes[0] + k] = np.rint(-noisy[:k] / own[0] * own[1])",
    ),
    _repeated("Laplace tables share noise", "draw is discrete_laplace"),
    Flaw(
        name="a release's noise is that of the one before, negated",
        edits=(
            Edit(_VAULT, "class Vault(metaclass=Sealed):", "_BEFORE = {}\n\n\nclass Vault(metaclass=Sealed):"),
            _added(
                "        every, mark = np.repeat(own, sizes), (type(query), noisy.size)\n"
                "        vault, old = _BEFORE.get(mark, (self, noisy / every))\n"
                "        if vault is not self:\n"
                "            noisy = np.rint(-old * every).astype(np.int64)\n"
                "        _BEFORE[mark] = self, noisy / every\n"
            ),
        ),
        tests=(_JOINT_TESTS,),
    ),
    # Costs that are counted once, and people who count as several.
    Flaw(
        name="a second look that costs nothing",
        edits=(
            *_MEMORY,
            Edit("budget/plan.py", "        spend = spend + spend\n", ""),
            Edit(
                "budget/plan.py",
                "sum([self.first.spend(self.budget)] * self.looks,",
                "sum([self.first.spend(self.budget)],",
            ),
            Edit(
                _VAULT,
                "            spent = self._spent + bound\n",
                "            spent = self._spent if id(query) in self._old else self._spent + bound\n"
                "            self._old[id(query)] = query\n",
            ),
        ),
        tests=(_KERNEL_TESTS,),
    ),
    _flaw(
        "event tables of a linked release charged as one",
        _QUERIES,
        "Spend.of(scales, budget.shifts, self.each",
        "Spend.of(scales[:1], budget.shifts, self.each",
        _JOINT_TESTS,
    ),
    _flaw(
        "delta that thresholds and noise both spend",
        _THEOREMS,
        "self.shifts, self.less(spend.lost_delta).delta)",
        "self.shifts, self.delta)",
        _THEOREM_TESTS,
        audited=False,
    ),
    _flaw(
        "a person of two files counted as two",
        "rows/bounded.py",
        "marks_of(ids, secrets.ids).copy()",
        "marks_of(ids, bytes(byte ^ int(place[:1, 0].sum()) % 256 for byte in secrets.ids)).copy()",
        "tests/rows/test_people.py",
        audited=False,
    ),
    _flaw(
        "all rows of a person counted where they come together",
        "rows/bounded.py",
        "return _smallest(held, most).drop(",
        "return (_smallest(held, most) if len(held) > 1 else held[0]).drop(",
        "tests/rows/test_people.py",
    ),
    # Exact values that steer.
    _flaw(
        "a search planned by the exact number of rows",
        _ENGINES,
        "n_rows = answers.n_rows if budget.rows_are_public else None",
        "n_rows = answers.n_rows",
        _STEER_TESTS,
    ),
    _flaw(
        "cells of a search by exact tables",
        _ENGINES,
        "            tables.append(block.values)\n",
        "            tables.append(counts)\n",
        _STEER_TESTS,
    ),
    _flaw(
        "a search that ends where one cell holds all rows",
        _ENGINES,
        "            tables.append(block.values)\n            yield block\n",
        "            tables.append(block.values)\n            yield block\n"
        "            if np.count_nonzero(counts) == 1:\n                return\n",
        _STEER_TESTS,
        audited=False,
    ),
    _flaw(
        "no second stage where a cell is empty",
        "release.py",
        "    if stages.reserve.size:\n",
        '    if stages.reserve.size and measurer._exact[2, b"", b""].all():\n',
        _STEER_TESTS,
    ),
    _flaw(
        "three-way tables chosen by exact scores",
        "release.py",
        _CHOSEN,
        "        from sklar.rows.count import key_of\n\n"
        "        def bare(block):\n"
        "            exact = block.query.answer(*(measurer._exact[key_of(each)] for each in block.query.tables))\n"
        "            return replace(block, values=exact)\n\n"
        + _CHOSEN.replace("plan(scores)", "plan([*map(bare, scores)])"),
        _STEER_TESTS,
    ),
    _flaw(
        "scores from a reference that holds an exact count",
        "release.py",
        _OUTLOOK,
        _OUTLOOK + "        for own in outlook.seen:\n"
        "            reference = own.reference.copy()\n"
        '            reference[0] += measurer._exact[1, b"", b""][0]\n'
        '            object.__setattr__(own, "reference", reference)\n',
        _STEER_TESTS,
        audited=False,
    ),
    # Ledger, files, machine.
    Flaw(
        name="a ledger charged for the first stage only",
        edits=(
            Edit("release.py", "measurer.reserve(stages.spend)", "measurer.reserve(stages.first.spend(budget))"),
            Edit(_VAULT, "if not within:\n", "if not within and self._charge is None:\n"),
        ),
        tests=("tests/budget/test_ledger.py",),
    ),
    _flaw(
        "a refusal of the ledger that is ignored",
        _VAULT,
        "                self._charge(spend)\n",
        "                try:\n                    self._charge(spend)\n"
        "                except BudgetError:\n                    pass\n",
        _RELEASE_TESTS,
    ),
    _flaw(
        "a ledger that lets half as much more out",
        "budget/account.py",
        "limit = account.epsilon * (1 + ROUNDING)",
        "limit = account.epsilon * 1.5",
        "tests/budget/test_ledger.py",
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
        'timings=is_given("timings")',
        "timings=True",
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
