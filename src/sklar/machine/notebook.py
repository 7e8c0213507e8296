"""How results show themselves: as frames of other libraries, and as cards in notebooks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sklar.machine.extras import require

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure

# Lines of a table that a card shows.
_SHOWN = 12


class Tabular:
    """What can be seen as a table: columns of equal length by name."""

    __slots__ = ()

    @abstractmethod
    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """The columns, by name."""

    def to_polars(self) -> pl.DataFrame:
        """As a frame of polars."""
        import polars as pl

        return pl.DataFrame(dict(self.to_columns()))

    def to_pandas(self) -> pd.DataFrame:
        """As a frame of pandas."""
        require("pandas", what="to_pandas", package="pandas", extra="pandas")
        import pandas as pd

        return pd.DataFrame(dict(self.to_columns()))


def html_card(
    title: str,
    facts: Mapping[str, object],
    columns: Mapping[str, Sequence[Any]] | None = None,
    *,
    verdict: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> str:
    """A card of HTML without style sheet or network: verdict and notes as sentences, facts, the head of a table."""
    from jinja2 import Environment, PackageLoader

    made = Environment(loader=PackageLoader("sklar.machine", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made.filters["sentence"] = sentence
    rows, texts = list(zip(*(columns or {}).values(), strict=True)), {"verdict": verdict, "notes": notes}
    shown = {"title": title, "facts": facts, "columns": columns, "rows": rows, "shown_rows": _SHOWN, **texts}
    return made.get_template("card.html.j2").render(shown)


def sentence(text: str) -> str:
    """The same text as a sentence: with a capital at its beginning and a full stop at its end."""
    return text[:1].upper() + text[1:] + "." * (text[-1:] not in ".!?:")


def blank_figure(width: float, height: float) -> tuple[Figure, Any]:
    """A figure and its axes. Needs matplotlib."""
    require("matplotlib", what="a plot", package="matplotlib", extra="plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax
