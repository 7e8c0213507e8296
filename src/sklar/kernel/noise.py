"""Exact discrete Laplace and discrete Gaussian noise: Canonne, Kamath and Steinke (2020), Algorithms 1 to 3.

Nothing here sees a count, and nothing here can be seeded: every call draws a fresh key from the operating system, one
for every `_PART_CELLS` cells, so that parts are drawn side by side. How cells are cut into parts depends on how many
they are alone, and cells are independent: the law of the noise is the same as if one key had served for all.

Why exact. A scale is a fraction p/q, every coin is a comparison of integers, and no floating-point number takes part
in the sampling, so the attack of Mironov (2012) on the low bits of the noise has nothing to read. Two things are
idealised: AES-256 in counter mode is taken for random, and a draw outside the proven range of the integers (fewer than
one in 2**180) raises instead of being returned. Each sampler states its precondition, its postcondition and why it
holds; together they bound every intermediate below 2**63:

    p <= 2**24, V <= 127, K <= 63
    U + pV            <  2**31    _laplace: U < p
    (|Y| q - p)**2    <  2**62    _gaussian: |Y| q <= U + pV
    256 * 2 p**2 * K  <  2**63    _bernoulli, called with d = 2 p**2 K

The arithmetic is int64 and not uint64 on purpose: numba and NumPy turn a sum of the two into a float.

Few cells are drawn in NumPy (`_draw_plainly`), many by the same algorithms compiled (`_draw`), by their number alone:
compiling takes seconds, and loading what was compiled half a second. The law is the same.

The time a call takes depends on the noise it draws, so whoever can time single calls learns a little about the noise.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from os import urandom
from types import FunctionType
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from sklar.errors import NoiseError
from sklar.kernel.cells import Whole
from sklar.kernel.seal import seal

__all__ = ["discrete_gaussian", "discrete_laplace"]

# A random word is one byte: nearly every coin is decided by its first byte, so longer words would be thrown away.
_Words = NDArray[np.uint8]
_Ints = NDArray[np.int64]
_Source = Callable[[int], _Words]

_BUFFER_WORDS = 1 << 18
_PART_CELLS = 1 << 16
# Up to this many cells in all calls, NumPy has drawn them before compiled code is loaded (`python -m benchmarks.start
# --crossover`). A call counts as so many cells more: that is what it costs beside them.
_PLAIN_CELLS, _CALL_CELLS = 1 << 19, 10_000
_drawn = [0]
_SMALLEST_SCALE = 2.0**-38  # with 24 significant bits, q <= 2**61: |Y| q and X // q are shifts of an int64
_LARGEST_SCALE = 2.0**24
_V_LIMIT = 128
_K_LIMIT = 64

# The base-256 digits of exp(-1) = 1/2! - 1/3! + 1/4! - ..., to 256 bits.
_INVERSE_E = tuple((sum((-1) ** k * (1 << 400) // math.factorial(k) for k in range(100)) >> 144).to_bytes(32))

_OUTSIDE = (
    "a draw must stay in the range where its integers are proven exact, got one outside. "
    "That is less likely than 2**-180: suspect the operating system's entropy; if it is sound, run again."
)

_LAPLACE = 0
_GAUSSIAN = 1

# In place of a position in the words: why there is no sample.
_SHORT = -1
_LIMIT = -2


def discrete_laplace(
    scales: NDArray[np.float64], sizes: NDArray[np.int64], *, threads: int = 1, narrow: bool = False
) -> Whole:
    """Independent noise with P(x) proportional to exp(-|x| / scale), table after table.

    Table t has sizes[t] cells at scales[t]. A scale must be a float32 number, so that it is exactly a fraction p/q.
    `narrow` noise takes 32 bits a cell, which hold every draw: `_laplace` proves it below 2**31.

    >>> discrete_laplace(np.array([0.5, 80.0]), np.array([4, 6])).shape
    (10,)
    """
    return _draw_parts(_LAPLACE, scales, sizes, threads, narrow=narrow)


def discrete_gaussian(
    scales: NDArray[np.float64], sizes: NDArray[np.int64], *, threads: int = 1, narrow: bool = False
) -> Whole:
    """Independent noise with P(x) proportional to exp(-x**2 / (2 scale**2)), table after table.

    Table t has sizes[t] cells at scales[t]. A scale must be a float32 number, so that it is exactly a fraction p/q.
    `narrow` noise takes 32 bits a cell, which hold every draw: `_laplace` proves it below 2**31.

    >>> discrete_gaussian(np.array([0.5, 80.0]), np.array([4, 6])).shape
    (10,)
    """
    return _draw_parts(_GAUSSIAN, scales, sizes, threads, narrow=narrow)


def _keystream() -> _Source:
    """Random words: AES-256-CTR under a key that only this stream knows.

    A key per stream leaves no state that a fork could copy, and makes the constant nonce safe.
    """
    encryptor = Cipher(AES256(urandom(32)), CTR(bytes(16))).encryptor()
    return lambda count: np.frombuffer(encryptor.update(bytes(count)), dtype=np.uint8)


def _draw_parts(
    kind: int, scales: NDArray[np.float64], sizes: NDArray[np.int64], threads: int, *, narrow: bool
) -> Whole:
    """Every cell once, in parts that threads draw side by side, each part from a stream of its own."""
    scales, sizes = _checked(scales, sizes)
    # Summed as Python integers: a sum that wrapped would let the kernel write past the end.
    noise: Whole = np.empty(sum(sizes.tolist()), dtype=np.int32 if narrow else np.int64)
    _drawn[0] += noise.size + _CALL_CELLS
    draw = _draw_plainly if _drawn[0] <= _PLAIN_CELLS else _draw
    if noise.size <= _PART_CELLS and not narrow:
        return draw(kind, scales, sizes, _keystream())
    ends = np.cumsum(sizes)

    def part(start: int) -> None:
        stop = min(start + _PART_CELLS, noise.size)
        # The tables from that of the part's first cell to that of its last, and where each ends within the part.
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        own = slice(first, last + 1)
        within = np.diff(np.minimum(ends[own], stop), prepend=start)
        noise[start:stop] = draw(kind, scales[own], within, _keystream())

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, range(0, noise.size, _PART_CELLS)))
    return noise


def _checked(scales: NDArray[np.float64], sizes: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    scales = np.asarray(scales).astype(np.float64, casting="safe")
    sizes = np.asarray(sizes).astype(np.int64, casting="safe")
    if scales.ndim != 1 or scales.shape != sizes.shape:
        raise NoiseError(
            "scales and sizes must be two flat arrays of the same length, "
            f"got shapes {scales.shape} and {sizes.shape}. Give one scale and one size per table."
        )
    if (sizes < 0).any():
        raise NoiseError(f"sizes must not be negative, got size={sizes[sizes < 0][0]}. Give the cells of each table.")
    return scales, sizes


def _draw(
    kind: int,
    scales: NDArray[np.float64],
    sizes: NDArray[np.int64],
    source: _Source,
    buffer_words: int = _BUFFER_WORDS,
) -> NDArray[np.int64]:
    """Fill all cells in order; the result depends on the words alone, not on how they are cut into buffers."""
    fill = _compiled()["_fill"]
    numerators, shifts = _fractions(scales)
    ends = np.cumsum(sizes)
    noise = np.empty(int(ends[-1]) if ends.size else 0, dtype=np.int64)

    words = source(buffer_words).copy()  # the kernel is compiled for writable arrays
    table = cell = 0
    while cell < noise.size:
        table, cell, used, status = fill(kind, numerators, shifts, ends, noise, words, table, cell)
        if status == _LIMIT:
            raise NoiseError(_OUTSIDE)
        if status == _SHORT:
            if used == 0:
                raise NoiseError(
                    f"a cell must need at most {buffer_words} random words, got one that needs more. "
                    "Suspect the operating system's entropy; if it is sound, run again."
                )
            # The cell cut off by the end of the buffer is replayed from its own first word. Drawing it afresh would
            # give it a second chance, and long draws, which are the ones cut off most often, would become too rare.
            words = np.concatenate([words[used:], source(used)])
    return noise


def _fractions(scales: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each scale as p and log2 q with scale = p/q exactly, in lowest terms; p <= 2**24 and log2 q <= 61."""
    outside = ~((scales >= _SMALLEST_SCALE) & (scales <= _LARGEST_SCALE))
    if outside.any():
        raise NoiseError(
            f"noise scale must lie between 2**-38 and 2**24, got scale={scales[outside][0]}. "
            "Change the budget, or the number of tables that share it."
        )
    inexact = scales.astype(np.float32) != scales
    if inexact.any():
        raise NoiseError(
            f"noise scale must be exactly a float32 number, got scale={scales[inexact][0]}. "
            "Round it up with sklar.kernel.theorems.round_up_scale."
        )
    # Powers of two only, so each step is exact: scale = mantissa * 2**exponent = p * 2**(exponent - 24).
    mantissas, exponents = np.frexp(scales)
    numerators = (mantissas * 2.0**24).astype(np.int64)
    zeros = np.frexp(numerators & -numerators)[1] - 1
    powers = exponents - 24 + zeros
    return (numerators >> zeros) << np.maximum(powers, 0), np.maximum(-powers, 0).astype(np.int64)


def _draw_plainly(
    kind: int, scales: NDArray[np.float64], sizes: NDArray[np.int64], source: _Source
) -> NDArray[np.int64]:
    """The same law for few cells, in NumPy: attempts for all cells without a value, side by side, until each has one.

    Why: Algorithms 2 and 3 start over from U wherever they refuse, so that they are repeated attempts from U to the
    last coin, of which the first that is kept counts. So they are here. Each coin reads words that no other coin reads,
    and which ones depends on words read before alone: given those, its words are random. So cells and attempts are
    independent, and every coin below has exactly the chance that its like has further down, by the same comparisons.
    """
    numerators, shifts = (np.repeat(each, sizes) for each in _fractions(scales))
    noise, left = np.empty(numerators.size, dtype=np.int64), np.arange(numerators.size)
    while left.size:
        values, kept = _attempt(kind, numerators[left], shifts[left], source)
        noise[left[kept]] = values
        left = np.delete(left, kept)
    return noise


def _attempt(kind: int, p: _Ints, shift: _Ints, source: _Source) -> tuple[_Ints, _Ints]:
    """One attempt for each scale p / 2**shift: the values that are kept, and whose they are.

    Precondition and postcondition are those of `_laplace` and `_gaussian`, for each; so are the bounds of integers.
    """
    mask = p - 1
    for bits in (1, 2, 4, 8, 16):
        mask |= mask >> bits
    words = source(3 * p.size).astype(np.int64).reshape(3, p.size)
    u = (words[0] << 16 | words[1] << 8 | words[2]) & mask
    kept = np.flatnonzero(u < p)
    kept = kept[_tosses_exp(u[kept], p[kept], source)]
    v, ones, more = np.zeros_like(p), np.ones_like(p), kept
    while more.size:
        more = more[_tosses_exp(ones[more], ones[more], source)]
        v[more] += 1
        if (v[more] == _V_LIMIT).any():
            raise NoiseError(_OUTSIDE)
    y = (u[kept] + p[kept] * v[kept]) >> shift[kept]
    negative = source(kept.size) < 128
    one = ~negative | (y > 0)
    y, kept = np.where(negative, -y, y)[one], kept[one]
    if kind == _LAPLACE:
        return y, kept
    n, d = ((np.abs(y) << shift[kept]) - p[kept]) ** 2, 2 * p[kept] ** 2
    good, more = np.ones(kept.size, dtype=bool), np.arange(kept.size)
    while more.size:
        # A coin per whole unit of n / d, then the rest: none of them is above 1.
        good[more] = _tosses_exp(np.minimum(n[more], d[more]), d[more], source)
        n -= d
        more = more[good[more] & (n[more] > 0)]
    return y[good], kept[good]


def _tosses(n: _Ints, d: _Ints, source: _Source) -> NDArray[np.bool_]:
    """`_bernoulli` for each n/d."""
    heads, open_ = np.zeros(n.size, dtype=bool), np.arange(n.size)
    while open_.size:
        n = 256 * n - source(n.size) * d
        heads[open_[n >= d]] = True
        undecided = (n > 0) & (n < d)
        open_, n, d = open_[undecided], n[undecided], d[undecided]
    return heads


def _tosses_exp(n: _Ints, d: _Ints, source: _Source) -> NDArray[np.bool_]:
    """`_bernoulli_exp` for each n/d."""
    odd, going = np.zeros(n.size, dtype=bool), np.arange(n.size)
    for k in range(1, _K_LIMIT):
        heads = _tosses(n[going], d[going] * k, source)
        odd[going[~heads]] = k & 1
        going = going[heads]
        if not going.size:
            return odd
    raise NoiseError(_OUTSIDE)


# Samplers to be compiled, which Python could run, too. They read words from position `at` and return (outcome, position
# after the words read). A negative position, _SHORT or _LIMIT, means there is no outcome.


def _bernoulli(n: int, d: int, words: _Words, at: int) -> tuple[int, int]:
    """1 with probability n/d.

    Precondition: 0 <= n <= d and 256 d < 2**63. Postcondition: the outcome is 1 with probability exactly n/d.
    Why: the words are the base-256 digits of a uniform real R in [0, 1), and the outcome says whether R < n/d. With w
    the first digit, R = (w + R') / 256 and R' is uniform again, so R < n/d means R' < (256 n - w d) / d. That is sure
    if the fraction is 1 or more, impossible if it is 0 or less, and else the same question with 256 n - w d for n.
    """
    while at < words.size:
        n = 256 * n - words[at] * d
        at += 1
        if n >= d:
            return 1, at
        if n <= 0:
            return 0, at
    return 0, _SHORT


def _bernoulli_exp(n: int, d: int, words: _Words, at: int) -> tuple[int, int]:
    """1 with probability exp(-n/d): Algorithm 1, the case of at most 1.

    Precondition: 0 <= n <= d <= 2**49. Postcondition: the outcome is 1 with probability exactly exp(-n/d).
    Why: with g = n/d, coin k shows heads with probability g/k, so the first tails comes after coin k with probability
    g**k / k!, and at an odd coin with probability 1 - g + g**2/2! - ... = exp(-g). K <= 63 keeps 256 d K < 2**63.
    """
    for k in range(1, _K_LIMIT):
        heads, at = _bernoulli(n, d * k, words, at)
        if at < 0:
            return 0, at
        if heads == 0:
            return k & 1, at
    return 0, _LIMIT


def _bernoulli_exp_one(words: _Words, at: int) -> tuple[int, int]:
    """1 with probability exp(-1): one comparison where Algorithm 1 tosses e coins on average.

    Postcondition: the outcome is 1 with probability exactly exp(-1).
    Why: the words are the base-256 digits of a uniform real, compared with those of exp(-1) until they differ; words
    that equal all 32 digits, with probability 2**-256, have no outcome.
    """
    for digit in _INVERSE_E:
        if at >= words.size:
            return 0, _SHORT
        word = words[at]
        at += 1
        if word < digit:
            return 1, at
        if word > digit:
            return 0, at
    return 0, _LIMIT


def _uniform(p: int, words: _Words, at: int) -> tuple[int, int]:
    """An integer from 0 to p - 1.

    Precondition: 1 <= p <= 2**24. Postcondition: each of the p integers has probability exactly 1/p.
    Why: an integer of the bit length of p - 1 is uniform over a power of two; those below p are equally likely.
    """
    mask = p - 1
    mask |= mask >> 1
    mask |= mask >> 2
    mask |= mask >> 4
    mask |= mask >> 8
    mask |= mask >> 16
    while True:
        u = 0
        left = mask
        while left > 0:
            if at >= words.size:
                return 0, _SHORT
            u = (u << 8) | words[at]
            at += 1
            left >>= 8
        u &= mask
        if u < p:
            return u, at


def _laplace(p: int, shift: int, words: _Words, at: int) -> tuple[int, int]:
    """Discrete Laplace of scale p/q with q = 2**shift: Algorithm 2.

    Precondition: 1 <= p <= 2**24, 0 <= shift <= 61. Postcondition: P(y) is proportional to exp(-|y| q / p), and
    |y| q < 2**31.
    Why: X = U + pV has P(x) proportional to exp(-x/p), for U mod p and V whole multiples; so floor(X / q) is geometric
    with ratio exp(-q/p); the sign is fair, and refusing one of the two zeros counts zero once. V <= 127 bounds X.
    """
    while True:
        u, at = _uniform(p, words, at)
        if at < 0:
            return 0, at
        keep, at = _bernoulli_exp(u, p, words, at)
        if at < 0:
            return 0, at
        if keep == 0:
            continue
        v = 0
        more = 1
        while more == 1:
            more, at = _bernoulli_exp_one(words, at)
            if at < 0:
                return 0, at
            v += more
            if v == _V_LIMIT:
                return 0, _LIMIT
        y = (u + p * v) >> shift
        negative, at = _bernoulli(1, 2, words, at)
        if at < 0:
            return 0, at
        if negative == 0:
            return y, at
        if y > 0:
            return -y, at


def _gaussian(p: int, shift: int, words: _Words, at: int) -> tuple[int, int]:
    """Discrete Gaussian of sigma = p/q with q = 2**shift: Algorithm 3, its free parameter t set to sigma.

    Precondition: 1 <= p <= 2**24, 0 <= shift <= 61. Postcondition: P(y) is proportional to exp(-y**2 q**2 / (2 p**2)).
    Why: y comes from the Laplace of scale sigma and is kept with probability exp(-g), g = (|y| q - p)**2 / (2 p**2);
    the exponents add up to -|y|/sigma - (|y|/sigma - 1)**2 / 2 = -y**2 / (2 sigma**2) - 1/2. As |y| q < 2**31 and
    p <= 2**24, the square is below 2**62 and d <= 2**49. exp(-g) is a coin exp(-1) per whole unit of g, then the rest.
    """
    d = 2 * p * p
    while True:
        y, at = _laplace(p, shift, words, at)
        if at < 0:
            return 0, at
        distance = (abs(y) << shift) - p
        n = distance * distance
        keep = 1
        while keep == 1 and n >= d:
            keep, at = _bernoulli_exp_one(words, at)
            if at < 0:
                return 0, at
            n -= d
        if keep == 1:
            keep, at = _bernoulli_exp(n, d, words, at)
            if at < 0:
                return 0, at
        if keep == 1:
            return y, at


def _fill(
    kind: int,
    numerators: NDArray[np.int64],
    shifts: NDArray[np.int64],
    ends: NDArray[np.int64],
    noise: NDArray[np.int64],
    words: _Words,
    table: int,
    cell: int,
) -> tuple[int, int, int, int]:
    """Draw cells from `cell` on while the words last: (table, next cell, words its predecessors used, status)."""
    used = 0
    while cell < noise.size:
        while ends[table] <= cell:
            table += 1
        if kind == _GAUSSIAN:
            value, after = _gaussian(numerators[table], shifts[table], words, used)
        else:
            value, after = _laplace(numerators[table], shifts[table], words, used)
        if after < 0:
            return table, cell, used, after
        noise[cell] = value
        cell += 1
        used = after
    return table, cell, used, 0


@cache
def _compiled() -> dict[str, Any]:
    """The names of this module, with the samplers compiled; `_fill` is what is called.

    Nothing is kept on the disk: numba unpickles its cache without checking who wrote it, and the kernel cannot check.
    """
    from numba import njit

    # Compiled code calls compiled code: the copies see one another where the originals see the originals.
    names = dict(globals())
    for name in ("_bernoulli", "_bernoulli_exp", "_bernoulli_exp_one", "_uniform", "_laplace", "_gaussian"):
        names[name] = njit(nogil=True)(FunctionType(names[name].__code__, names, name))
    fill = FunctionType(_fill.__code__, names, "_fill")
    signature = "(int64, int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1], int64, int64)"
    return names | {"_fill": njit(f"UniTuple(int64, 4){signature}", nogil=True)(fill)}


seal(__name__)
