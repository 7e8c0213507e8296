"""The only door out of the private side: refuse, charge, draw, add.

Claim, for one `Vault` over its whole life: everything that its methods have returned is together (epsilon, delta)-DP
under the budget's neighbors.

Proof. A row has at most one code per attribute (`codes`), by the schema alone, so it stands in at most one cell of each
one-way and each two-way table (`count`), of each three-way table of coarse levels, which are public functions of codes
(`triples`), and in at most one cell of each histogram of one attribute. A row is a person,
or at most `Budget.rows` rows of a person are counted (`people`): `Budget.shifts` shifts of so many rows a table, as
`theorems` says at its top. Every cell of the public domain gets fresh exact noise (`noise`), seen or not. All that was
drawn so far costs the epsilon that `Budget.spent` returns, also when a later plan was made from earlier noisy tables;
every method refuses before it draws when that would exceed the budget. The number of rows leaves without noise only
where neighbors share it (`Budget.rows_are_public`); elsewhere it is a table of one cell, to which a person adds at most
`Budget.rows`. Whether and what is raised, and how much noise is drawn, depends on sizes, plan, budget and ledger alone.

Categories that are not public come from tables with noise on the values that occur (`common`). Only those that reach a
threshold are let out; what that costs beside the noise, the chance `lost_delta`, is proven in `Budget.less` and taken
off the budget. How much noise is drawn there depends on how many values occur: nothing but the time it takes can tell.

Scores of three-way tables are single whole numbers. One moves by at most `SCORE_MOVES` times the L2 sensitivity of a
table, and its noise has so many times the scale: it costs what a table does (`count.score_plainly`).

Parities of bits (`parities`) stand in place of tables where a plan says so. A row moves at most n_k(s) counts of order
k by one, for one s, which is what `Plan.spend` pays for.

Tokens (`tokens`) are dealt by people, not by rows: a table of them moves as G times a table of counts does, and its
noise has G times the scale (`shares`).

With a ledger: nothing is drawn unless a charge that covers it is on the disk. `reserve` pays for the whole release, all
its stages. A method pays for its own tables when nothing was reserved, and refuses what the charge does not cover.

Noise cannot be switched off: no argument replaces it, and this module, `noise` and the class refuse assignments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sklar.errors import BudgetError, DataError
from sklar.kernel.cells import Cells, Whole
from sklar.kernel.count import Counts, score_plainly
from sklar.kernel.noise import discrete_gaussian, discrete_laplace
from sklar.kernel.seal import Sealed, seal
from sklar.kernel.tables import MANY_CELLS, MOST_TOKENS, NoisyTables, Plan
from sklar.kernel.theorems import Budget, Cost, Spend, chance_of_one
from sklar.kernel.tokens import Tokens
from sklar.kernel.triples import SCORE_MOVES, NoisyScores, NoisyTriples, Triples


class Charge(Protocol):
    """Pays for a spend before any of it is measured: on the disk when it returns; raises when it does not fit."""

    def __call__(self, spend: Spend, /) -> object:
        """Charge the ledger."""


class Vault(metaclass=Sealed):
    """Exact counts of one table behind the door, with the budget that guards it."""

    __slots__ = ("_budget", "_cells", "_charge", "_counts", "_reserved", "_spent", "_threads", "_trios")

    def __init__(self, budget: Budget, *, charge: Charge | None = None, threads: int = 1) -> None:
        self._budget, self._charge, self._threads = budget, charge, threads
        self._spent, self._reserved = Spend.of([]), Cost()
        self._counts: Counts | None = None
        self._cells, self._trios = Cells([]), np.empty(0, dtype=np.int64)

    def hold(self, counts: Counts, cells: Cells) -> None:
        """Take the exact counts of the table, once."""
        if self._counts is not None:
            raise BudgetError("a vault holds the counts of one table. Open another for another table.")
        if counts.one_way.size != cells.n_levels or counts.pairs.size != cells.n_cells:
            raise BudgetError("counts must cover all tables of their attributes. Count them by the same schema.")
        if self.rows_are_public and counts.n_rows == 0:
            raise DataError("the table has no rows. It must hold at least one.")
        self._counts, self._cells = counts, cells

    @property
    def rows_are_public(self) -> bool:
        """Whether neighbors share the number of rows that are counted."""
        return self._budget.rows_are_public

    @property
    def rows_are_people(self) -> bool:
        """Whether every row of the table is a person, so that none is left out."""
        return self._budget.rows_per_person is None

    @property
    def n_rows(self) -> int | None:
        """The number of rows where it is public, else None."""
        return self._held.n_rows if self.rows_are_public else None

    @property
    def spent(self) -> Spend:
        """What was drawn so far."""
        return self._spent

    @property
    def _held(self) -> Counts:
        if self._counts is None:
            raise BudgetError("the vault holds no table yet. Count one first.")
        return self._counts

    def reserve(self, spend: Spend) -> None:
        """Charge the ledger, where there is one, for a whole release of this cost, before anything is drawn."""
        if self._spent.scales.size or self._reserved.rho:
            raise BudgetError("a release is charged once, before it is measured. Open the table again.")
        if self._charge is not None:
            self._charge(spend)
            self._reserved = self._budget.cost(spend)

    def measure(self, plan: Plan) -> NoisyTables:
        """Noisy tables by this plan.

        Sensitivity: `Budget.shifts` shifts of `Budget.rows` a table. Cost: `Budget.spent` of all that was drawn so far.
        """
        cells, counts = self._cells, self._held
        if plan.one_way.size not in (0, cells.n_attributes) or plan.pairs.size not in (0, cells.n_pairs):
            m = cells.n_attributes
            raise BudgetError(f"the plan must cover all tables of {m} attributes. Make it with plan_tables.")
        if plan.total is not None and self.rows_are_public:
            raise BudgetError("the number of rows is measured only where it is not public. Make a new plan.")
        total = np.array([] if plan.total is None else [counts.n_rows], dtype=np.int64)
        if plan.parities is None:
            one_way = counts.one_way if plan.one_way.size else counts.one_way[:0]
            pairs, trios = counts.pairs if plan.pairs.size else counts.pairs[:0], np.empty(0, dtype=np.int64)
        else:
            one_way, pairs, trios = self._parities(plan)
        sizes = [np.ones(total.size, dtype=np.int64), *plan.sizes(cells), np.ones(trios.size, dtype=np.int64)]
        ends = np.cumsum([total.size, one_way.size, pairs.size])
        noisy = np.split(self._draw(plan.scales, np.concatenate(sizes), spend=plan.spend), ends)
        for part, exact in zip(noisy, (total, one_way, pairs, trios), strict=True):
            part += exact
        noisy = [part if part.size > MANY_CELLS else part.astype(np.int64, copy=False) for part in noisy]
        return NoisyTables(
            cells=cells,
            mechanism=self._budget.mechanism,
            n_rows=self.n_rows,
            total=int(noisy[0][0]) if total.size else None,
            one_way=noisy[1],
            pairs=noisy[2],
            plan=plan,
            trios=noisy[3],
        )

    def hold_trios(self, odd: NDArray[np.int64], n_rows: int) -> None:
        """Take the exact parities of all triples of bits, of the same rows that were counted, once."""
        if n_rows != self._held.n_rows:
            raise DataError("the table changed while it was read. Give a table or file that stays as it is.")
        if self._trios.size or not self._cells.are_bits or odd.size != self._cells.n_trios:
            raise BudgetError("a vault takes the parities of all triples of bits of its table, once.")
        self._trios = odd

    def _parities(self, plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Exact ones, and exact parities of pairs and triples: of two bits, ones of both less twice the rows with two.

        They are those of `parities`: a value without a level is a bit of 0, and in no one's count.
        """
        cells, counts = self._cells, self._held
        alike = all((each == each[:1]).all() for each in (plan.one_way, plan.pairs, plan.trios))
        if not (cells.are_bits and plan.parities == self._budget.neighbors and plan.pairs.size and alike):
            raise BudgetError("parities are of bits, all of them, under the budget's neighbors. Make a new plan.")
        if self._budget.mechanism != "gaussian" or plan.trios.size not in (0, self._trios.size):
            raise BudgetError("parities take gaussian noise, and those of triples must have been counted first.")
        first, second = cells.pairs
        ones = counts.one_way[1::2]
        return (
            ones,
            ones[first] + ones[second] - 2 * counts.pairs[3::4].astype(np.int64),
            self._trios[: plan.trios.size],
        )

    def histogram(self, exact: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """A histogram of one attribute over a full public grid, seen or not, with noise on every cell.

        Sensitivity: `Budget.shifts` shifts of `Budget.rows`. Cost: one table at this scale.
        """
        return exact + self._draw(np.array([scale]), np.array([exact.size]))

    def triples(self, exact: NDArray[np.int64], triples: Triples, scales: NDArray[np.float64]) -> NoisyTriples:
        """Three-way tables over coarse levels, with noise on every cell, at these scales, one per table.

        Precondition: `exact` are counts of rows of the table that the vault holds, those of people chosen anew or not
        (`theorems`); which tables, coarse levels and scales is public, or follows from earlier noisy tables. A level
        has one coarse level, so a row stands in at most one cell of each table. Sensitivity: `Budget.shifts` shifts of
        `Budget.rows` a table, as of a two-way table. Cost: one table each, at its scale.
        """
        if exact.shape != (triples.n_cells,) or scales.shape != (len(triples.attributes),):
            raise BudgetError("three-way tables need a count for every cell and a scale for every table. Count again.")
        if triples.cells != self._cells:
            raise BudgetError("three-way tables must be those of the attributes that the vault holds. Count again.")
        return NoisyTriples(triples=triples, counts=exact + self._draw(scales, triples.sizes), scales=scales)

    def scores(
        self, exact: NDArray[np.int64], triples: Triples, reference: NDArray[np.int64], scale: float
    ) -> NoisyScores:
        """How far all three-way tables lie from a public reference, with noise of `SCORE_MOVES` times this scale.

        Precondition: as for `triples`; the reference is public, or follows from earlier noisy tables. Sensitivity: a
        score moves by `SCORE_MOVES` times what a table does (`count.score_plainly`). Cost: one table each, at `scale`.
        """
        if len(triples.attributes) != self._cells.n_trios or triples.cells != self._cells:
            raise BudgetError("scores must be those of all triples of attributes that the vault holds. Count again.")
        if exact.shape != (triples.n_cells,) or reference.shape != exact.shape:
            raise BudgetError("scores need a count and a reference for every cell. Count again.")
        if self._budget.mechanism != "gaussian":
            raise BudgetError("scores of three-way tables take gaussian noise. Make a new plan.")
        number = len(triples.attributes)
        noise = self._draw(np.array([scale]), np.array([number]), each=SCORE_MOVES, spend=Spend.of([scale], [number]))
        return NoisyScores(scores=score_plainly(exact, triples, reference) + noise, scale=scale)

    def common(self, exact: Mapping[str, int], scale: float, threshold: int) -> dict[str, int]:
        """The values of one attribute whose noisy count reaches the threshold, with that count.

        Sensitivity: `Budget.shifts` shifts of `Budget.rows`. Cost: one table at this scale, and `chance_of_one` of
        delta, as is proven in `Budget.less`.
        """
        texts = sorted(exact)
        counts = np.array([exact[text] for text in texts], dtype=np.int64)
        noise = self._draw(np.array([scale]), np.array([counts.size]), self._lost(scale, threshold))
        return {text: count for text, count in zip(texts, (counts + noise).tolist(), strict=True) if count >= threshold}

    def shares(self, exact: Sequence[Tokens], scales: NDArray[np.float64]) -> list[NDArray[np.int64]]:
        """Tables of tokens with noise on every cell, at these scales in people: `each` times as much in tokens.

        Sensitivity: `each` times that of `Budget.shifts` unit shifts in L2 (`tokens`). Cost: that of tables of counts
        at these scales, under Gaussian noise.
        """
        each = np.array([tokens.each for tokens in exact], dtype=np.int64)
        sizes = np.array([tokens.table.size for tokens in exact], dtype=np.int64)
        if self._budget.mechanism != "gaussian" or self._budget.rows_per_person != 1:
            raise BudgetError("shares of people take gaussian noise and a budget by person, 1 each. Make a new plan.")
        if scales.shape != each.shape or (each < 1).any() or (each > MOST_TOKENS).any() or (each & (each - 1)).any():
            raise BudgetError("every table of shares needs a scale, and a power of two of tokens. Make a new plan.")
        noisy = np.split(self._draw(scales, sizes, each=each), np.cumsum(sizes)[:-1])
        return [tokens.table + noise for tokens, noise in zip(exact, noisy, strict=True)]

    def _lost(self, scale: float, threshold: int) -> float:
        return chance_of_one(scale, threshold, self._budget.rows)

    def _draw(
        self,
        scales: NDArray[np.float64],
        sizes: NDArray[np.int64],
        lost_delta: float = 0.0,
        each: NDArray[np.int64] | int = 1,
        spend: Spend | None = None,
    ) -> Whole:
        """Fresh noise for tables of these sizes, in units of 1 / `each`, or a refusal before any is drawn.

        It costs `spend`; where that is None, a table at each scale.
        """
        spent = self._spent + (Spend.of(scales, lost_delta=lost_delta) if spend is None else spend)
        epsilon = self._budget.spent(spent)
        if epsilon > self._budget.epsilon:
            raise BudgetError(
                f"this plan would bring the privacy spent to epsilon={epsilon:.6g}, above the budget of "
                f"{self._budget.epsilon:.6g}. Plan for what is left."
            )
        if self._charge is not None:
            if not self._reserved.rho:
                self.reserve(spent)
            if not self._reserved.covers(self._budget.cost(spent)):
                raise BudgetError("this plan costs more than the ledger was charged for. Charge all stages at first.")
        # Spent before drawn: an interruption may lose budget but never hide a measurement.
        self._spent = spent
        draw = discrete_gaussian if self._budget.mechanism == "gaussian" else discrete_laplace
        return draw(scales * each, sizes, threads=self._threads, narrow=self._fits_32_bits(scales * each, sizes))

    def _fits_32_bits(self, scales: NDArray[np.float64], sizes: NDArray[np.int64]) -> bool:
        """Whether very many cells are drawn, and 32 bits hold every count with its noise: by public facts alone."""
        # A draw is below `noise._V_LIMIT` times its scale.
        return bool(
            sizes.sum() > MANY_CELLS and self.rows_are_public and self._held.n_rows + 128 * scales.max() < 2**31
        )


seal(__name__)
