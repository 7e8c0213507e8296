"""What is asked of a model, by value or by the path of its file: post-processing, at no privacy cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from sklar.answer import DEFAULT_LEVEL
from sklar.answer.query import Answer, answer
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.files.write import check_target, write_text

if TYPE_CHECKING:
    from sklar.answer.infer import Declared, Inference


def model_of(given: Model | str | Path) -> Model:
    """The model that a caller gives, by value or as the path of its file."""
    return given if isinstance(given, Model) else load(given)


def query(
    model: Model | str | Path,
    predicate: str,
    *,
    level: float = DEFAULT_LEVEL,
    complete: bool = False,
    exact: bool = False,
) -> Answer:
    """How many rows satisfy a predicate, with error bars where it was measured: `sklar query` as a function.

    `complete` vouches that every row has a level of every attribute; `exact` refuses to cut a bin.
    """
    return answer(model_of(model), predicate, level=level, complete=complete, exact=exact)


def infer(
    model: Model | str | Path,
    question: str,
    *,
    level: float = DEFAULT_LEVEL,
    target: str | None = None,
    scores: Mapping[str, Declared] | None = None,
) -> Inference:
    """The answer to a question such as "mean(hours) by sex" or "income ~ age + sex", with honest errors.

    `target` is "population" or "table"; `scores` says by attribute what levels stand for (docs/inference.md).
    """
    return model_of(model).infer(question, level=level, target=target, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """A report that is safe to publish: one HTML page that needs no network."""

    name: str
    html: str

    def __repr__(self) -> str:
        return f"Report('{self.name}', {len(self.html.encode()) / 1e6:.2f} MB of HTML; save it with .save(PATH))"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:40em;border:0"></iframe>'

    def save(self, path: str | Path) -> None:
        """Write the page to a file, whole or not at all."""
        write_text(check_target(path, (".html",)), self.html)


def report(model: Model | str | Path, *, out: str | Path | None = None) -> Report:
    """A report that is safe to publish, from a model alone; with `out`, it is written there, too."""
    from sklar.answer.report import publishable

    found = model_of(model)
    name = f"{found.schema.name}.sklar" if isinstance(model, Model) else Path(model).name
    if out is not None:
        check_target(out, (".html",))
    made = Report(name=name, html=publishable(found, file_name=name))
    if out is not None:
        made.save(out)
    return made
