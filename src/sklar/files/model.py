"""A fitted release, of one table or of linked ones: save, sample any number of rows, ask questions. It is public."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from sklar.answer import DEFAULT_LEVEL
from sklar.budget.certificate import Certificate, Measured, rounded_up
from sklar.budget.method import Method
from sklar.draw.blocks import Copula
from sklar.draw.decode import Shape, dummy_schema, record_schema
from sklar.draw.sample import BlockSampler, TreeSampler, check_draw, tree_columns
from sklar.errors import ModelError, OutputError
from sklar.files.write import (
    SUFFIXES,
    Library,
    check_library,
    check_tables,
    check_target,
    to_library,
    write_frames,
    write_tables,
    write_text,
)
from sklar.fitting.density import fit_shapes
from sklar.machine.extras import lazily
from sklar.machine.notebook import html_card
from sklar.machine.progress import SILENT, Progress, watch
from sklar.machine.threads import in_order
from sklar.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from sklar.answer.condition import Given
    from sklar.answer.infer import Declared, Inference
    from sklar.answer.query import Answer, Estimate
    from sklar.fitting.order import CourseLaws
    from sklar.public.tree import Tree
else:
    pl = lazily("polars")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Model:
    """Noisy tables, the copula fitted to them, and what was decided; `n_rows` is public, or estimated from them."""

    measured: Measured
    copula: Copula
    n_rows: int
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        kind = self.settings.get("kind") or self.settings["method"]
        return f"Model('{self.schema.name}', {self._size}; {kind}; {_spent(self.certificate, '=')})"

    @property
    def _size(self) -> str:
        schema, counted = self.schema, self.certificate.counted
        return f"{self.n_rows:,} {counted}, {schema.n_attributes:,} attributes, {schema.n_levels:,} levels"

    def _repr_html_(self) -> str:
        certificate, schema = self.certificate, self.schema
        facts = {
            "table": self._size,
            "privacy": f"Privacy spent: {_spent(certificate)} ({certificate.neighbors})",
            "model": " ".join(self.copula.summary(self.settings)).removeprefix("Model: "),
        }
        shown = {"attribute": "name", "type": "kind", "levels": "n_levels"}
        columns = {title: [getattr(each, name) for each in schema.attributes] for title, name in shown.items()}
        note = "Everything here is public: .sample(), .query and .infer cost no privacy."
        return html_card(f"Model of '{schema.name}'", facts, columns, notes=[note])

    @property
    def schema(self) -> Schema:
        """What is publicly known of the table."""
        return self.copula.schema.whole or self.copula.schema

    @property
    def measured_schema(self) -> Schema:
        """The part of it that was measured: all but the attributes that others determine."""
        return self.copula.schema

    @property
    def certificate(self) -> Certificate:
        """What was spent on this model, in all its stages."""
        return self.measured.certificate

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """How numbers lie inside their bins, by attribute: from the noisy tables, at no cost."""
        return {} if self.dummies else fit_shapes(self.measured, self.copula.margins())

    @property
    def columns(self) -> pl.Schema:
        """Names and types of the columns that `sample` returns."""
        return dummy_schema(self.schema) if self.dummies else record_schema(self.schema)

    @property
    def method(self) -> Method:
        """How the release was to measure, and which model it was to fit."""
        name, paper = self.settings["method"], self.settings["preset"] == "paper"
        return Method(name=name, paper=paper, dummies=self.dummies)

    @property
    def dummies(self) -> bool:
        """Whether rows are the paper's 0/1 columns instead of valid records."""
        return self.copula.dummies

    @property
    def _described(self) -> Schema | None:
        return None if self.dummies else self.schema

    @overload
    def sample(
        self, rows: int | None = ..., *, given: Given | None = ..., seed: int | None = ..., to: Literal["polars"] = ...
    ) -> pl.DataFrame: ...
    @overload
    def sample(
        self, rows: int | None = ..., *, given: Given | None = ..., seed: int | None = ..., to: Literal["pandas"]
    ) -> pd.DataFrame: ...
    @overload
    def sample(
        self, rows: int | None = ..., *, given: Given | None = ..., seed: int | None = ..., to: Literal["arrow"]
    ) -> pa.Table: ...
    def sample(
        self, rows: int | None = None, *, given: Given | None = None, seed: int | None = None, to: Library = "polars"
    ) -> pl.DataFrame | pd.DataFrame | pa.Table:
        """Draw synthetic rows: as many as the original has unless told otherwise. Costs no privacy, however often.

        With `given`, all rows satisfy a condition, and have the model's distribution given it:
        `given={"sex": "Female", "age": (30, 45)}` (a tuple is a range without its upper end, a list several values,
        None is missing), or a predicate as `query` takes it. Rules hold; what cannot be is refused. Where it cuts a
        bin, the model's shape inside the bin decides, which was not measured unless the release searched there.

        The same model, condition and seed give the same rows; without a seed, a fresh one is drawn. `to` names the
        library; pandas and Arrow hold every type that the schema states, polars the nearest that it has.
        """
        check_library(to)
        return to_library(pl.concat(self.sample_batches(rows, given=given, seed=seed)), to, self._described)

    def sample_batches(
        self, rows: int | None = None, *, given: Given | None = None, seed: int | None = None
    ) -> Iterator[Any]:
        """The same rows as `sample`, as a stream of frames; of linked tables by name, of some people at a time."""
        rows, seed = check_draw(rows, seed)
        sampler = self.sampler(seed, given)
        return in_order(sampler.draw, sampler.blocks(self.n_rows if rows is None else rows))

    def sampler(self, seed: int, given: Given | None = None, *, enums: bool = False) -> BlockSampler:
        """Draws any block of rows, here or on another machine."""
        if given is None:
            return BlockSampler(self.copula, seed, shapes=self.shapes, enums=enums)
        condition, shapes = self.condition(given)
        return BlockSampler(self.copula, seed, shapes=shapes, enums=enums, condition=condition)

    def condition(self, given: Given) -> tuple[Any, dict[str, Shape]]:
        """What drawn rows satisfy, over the levels of the model, and the shapes inside bins that it divides.

        Of linked tables it is about people: conditions are on their attributes, and on the numbers of their rows.
        """
        from sklar.answer.condition import condition_of

        if (tree := self.measured.tree) is not None:
            return condition_of(given, tree.people, self.shapes)
        self._require_records("given")
        return condition_of(given, self.schema, self.shapes)

    def _require_records(self, what: str) -> None:
        if self.dummies:
            raise ModelError(f"{what} is about records, and this model draws dummies. Fit it without dummies.")
        if self.measured.tree is not None:
            raise ModelError(f"{what} is about one table, and this model is of several. Fit one of them by itself.")

    def complete(
        self, rows: object, *, seed: int | None = None, to: Library = "polars"
    ) -> pl.DataFrame | pd.DataFrame | pa.Table:
        """Fill the nulls of these rows from the model's distribution given the rest of each row.

        `rows` is a table of polars, pandas or Arrow; a column that it lacks is filled altogether, and a filled value is
        never missing. What is drawn costs no privacy, but the rows that came in are in what comes out, as they were:
        they are not private by our doing.
        """
        from sklar.answer.condition import complete_rows

        check_library(to)
        self._require_records("complete")
        _, seed = check_draw(None, seed)
        return to_library(complete_rows(self.copula, rows, self.shapes, seed), to, self.schema)

    def write(
        self,
        path: str | Path,
        rows: int | None = None,
        *,
        given: Given | None = None,
        seed: int | None = None,
        spreadsheet: bool = False,
        progress: Progress = SILENT,
    ) -> None:
        """Sample straight into a CSV, Parquet, Arrow or NDJSON file, a block at a time. Arguments are as for `sample`.

        `spreadsheet` writes CSV in which no text reads as a formula: an apostrophe stands before one that would.
        """
        target = check_target(path, (".csv",) if spreadsheet else SUFFIXES)
        rows, seed = check_draw(rows, seed)
        rows = self.n_rows if rows is None else rows
        sampler = self.sampler(seed, given, enums=target.suffix.lower() == ".parquet")
        progress.stage("sample", total=rows, unit="rows")
        frames = watch(in_order(sampler.draw, sampler.blocks(rows)), progress)
        write_frames(target, sampler.columns, frames, self._described, shown=self.columns, spreadsheet=spreadsheet)

    def estimate(self, *names: str, level: float = DEFAULT_LEVEL) -> Estimate:
        """The noisy table of one or two attributes, averaged over all measurements, with errors and intervals."""
        from sklar.answer.query import estimate

        return estimate(self.measured, *names, level=level)

    def query(self, predicate: str, *, level: float = DEFAULT_LEVEL, exact: bool = False) -> Answer:
        """How many rows satisfy a predicate, with error bars where it was measured. Costs no privacy."""
        from sklar.answer.query import answer

        return answer(self, predicate, level=level, exact=exact)

    def infer(
        self,
        question: str | Callable[[Any, Any], Any],
        *,
        columns: Sequence[str] = (),
        level: float = DEFAULT_LEVEL,
        target: str | None = None,
        scores: Mapping[str, Declared] | None = None,
    ) -> Inference:
        """The answer to a question such as "mean(hours) by sex" or "income ~ age + sex", with honest errors.

        Or to any statistic: a function of a polars table of these `columns`, and of the weights of its rows, that
        returns a number, numbers, or numbers by name. `target` is "population" or "table"; `scores` says by attribute
        what levels stand for: "midpoint", or a number for each level (docs/inference.md).
        """
        from sklar.answer.infer import infer, infer_function

        if not isinstance(question, str):
            return infer_function(self, question, columns, level=level, target=target, scores=scores)
        if columns:
            raise ModelError("columns are for a function, and the question is a text that names its own. Omit them.")
        return infer(self, question, level=level, target=target, scores=scores)

    def summary(self) -> list[str]:
        """What was released and what it cost, in a few lines."""
        certificate, schema = self.certificate, self.schema
        size = f"{'' if certificate.public_rows is not None else 'about '}{self.n_rows:,} {certificate.counted}"
        title = f"Table '{schema.name}': {size}, {schema.n_attributes} attributes, {schema.n_levels} levels."
        aims = [f"Released for {', '.join(schema.target)}."] if schema.target else []
        guarded = "content" if certificate.neighbors == "replace-one" else "presence"
        how = f"{certificate.neighbors} neighbors, {certificate.mechanism} noise, {certificate.composition} composition"
        spent = f"Privacy spent: {_spent(certificate)}, for the {guarded} of any one {certificate.unit}"
        lines = [title, *aims, spent, f"  ({how}):"]
        lines += [f"  {unread}"] if (unread := certificate.not_covered) else []
        for finding in certificate.domains:
            attribute = schema.attribute(finding.attribute)
            kept = finding.words(attribute)
            scale = f"noise of scale {finding.scale:.4g} a count"
            lines.append(f"  {finding.of} of '{attribute.name}' found: {kept}, {scale}")
        if certificate.domains:
            lines.append(f"  all searches together: {certificate.search_share:.1%} of the cost")
        if certificate.earlier:
            named = ", ".join(f"'{name}'" for name in certificate.earlier)
            lines.append(f"  domains found by an earlier release, which paid for them: {named}")
        lines += [f"  '{each.name}': {each.note}" for each in schema.attributes if each.note]
        lines += _measured(certificate)
        determined = schema.determined
        lines += [f"Rules: '{name}' is determined by '{by}' and was not measured." for name, by in determined.items()]
        if forbidden := len(schema.rules) - len(determined):
            lines.append(f"Rules: {forbidden:,} forbidden combinations; no record holds one.")
        return [*lines, *self.copula.summary(self.settings)]

    def save(self, path: str | Path) -> None:
        """Write the model to a `.sklar` file, whole or not at all."""
        _save(self, path)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TreeModel(Model):
    """A model of linked tables: that of their joint table, whose rows are people, and the laws of rows in order."""

    laws: Mapping[str, CourseLaws]

    @property
    def tree(self) -> Tree:
        """What is publicly known of all tables."""
        if self.measured.tree is None:
            raise ModelError("a model of linked tables must say which they are. Get an intact copy.")
        return self.measured.tree

    @property
    def columns(self) -> dict[str, pl.Schema]:  # type: ignore[override]
        """Names and types of the columns of all tables, by their names."""
        return tree_columns(self.tree)

    def sample(  # type: ignore[override]
        self, rows: int | None = None, *, given: Given | None = None, seed: int | None = None, to: Library = "polars"
    ) -> dict[str, Any]:
        """Draw so many synthetic people with all their rows: the tables by name. Costs no privacy, however often.

        People have keys 1, 2, ...; every row of another table has the key of one of them, and some people have none.
        With `given`, all people satisfy a condition on their own attributes or on numbers of rows ("age >= 60 and
        visits >= 3"), and have rows as such people do. The same model, condition and seed give the same tables; a
        person's rows stand in the order that the schema names, and without one theirs means nothing.
        """
        check_library(to)
        drawn = list(self.sample_batches(rows, given=given, seed=seed))
        return {name: to_library(pl.concat([block[name] for block in drawn]), to, None) for name in self.columns}

    def sampler(self, seed: int, given: Given | None = None, *, enums: bool = False) -> TreeSampler:  # type: ignore[override]
        """Draws any block of people with all their rows."""
        held = None if given is None else self.condition(given)
        copula: Any = self.copula
        return TreeSampler(copula, self.tree, self.laws, seed, shapes=self.shapes, enums=enums, condition=held)

    def write(
        self,
        path: str | Path,
        rows: int | None = None,
        *,
        given: Given | None = None,
        seed: int | None = None,
        spreadsheet: bool = False,
        kind: str = "csv",
        progress: Progress = SILENT,
    ) -> None:
        """Sample straight into a folder with a file of this kind for each table, or into one database.

        A path that ends in .duckdb, .sqlite or .db is a database with all keys declared. Public tables are copied.
        """
        target = check_tables(path, kind)
        rows, seed = check_draw(rows, seed)
        progress.stage("sample")
        sampler = self.sampler(seed, given, enums=kind == "parquet")
        drawn = in_order(sampler.draw, sampler.blocks(self.n_rows if rows is None else rows))
        how: dict[str, Any] = {"shown": self.columns, "kind": kind, "spreadsheet": spreadsheet}
        write_tables(target, self.tree, sampler.columns, drawn, **how)

    def summary(self) -> list[str]:
        """What was released and what it cost, in a few lines."""
        head, *lines = Model.summary(self)
        tables = (f"at most {each.at_most:,} {each.name}" for each in self.tree.branches[1:])
        return [f"{head[:-1]}; of a person {', '.join(tables)}.", *lines]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfitted:
    """What a release measured, and the method that is to be fitted to it: a model file without its fitted part."""

    measured: Measured
    method: Method

    def fit(self, *, progress: Progress = SILENT) -> Model:
        """Fit the model. Costs no privacy."""
        return fit_tables(self.measured, method=self.method, progress=progress)


def _save(model: Model | Unfitted, path: str | Path) -> None:
    # Imported here: a file is read into a model, so that module imports this one.
    from sklar.files.archive import save

    save(model, path)


def fit_tables(
    measured: Measured, *, method: Method | str = "auto", keep: str | Path | None = None, progress: Progress = SILENT
) -> Model:
    """Fit a model to noisy tables: post-processing, at no privacy cost.

    What was measured is written to `keep` before, for `resume`.
    """
    # Imported here: a model that is loaded needs no fit.
    from sklar.draw.repair import hold_margins
    from sklar.fitting.choose import fit_auto, refined
    from sklar.fitting.latent import LatentModel
    from sklar.fitting.margins import GAIN_DIGITS, as_stored, digits, pool
    from sklar.fitting.order import fit_laws

    method, schema = Method.of(method), measured.schema
    method.require(schema.whole or schema)
    # A disk that is full now may have room when the model is saved.
    with suppress(OutputError):
        if keep is not None:
            _save(Unfitted(measured=measured, method=method), keep)
    estimates = pool(measured)
    settings: dict[str, Any] = {"method": method.name, "preset": "paper" if method.paper else None}
    copula: Copula
    bits = digits(measured.blocks, estimates.n_rows)
    if method.name == "binary":
        # scipy takes a while to load, and most releases do without.
        from sklar.paper.estimate import fit_binary, read_tables

        progress.stage("fit")
        probabilities = read_tables(estimates, paper=method.paper)
        fitted = fit_binary(probabilities, schema, dummies=method.dummies, weighted=not method.paper)
        copula = as_stored(hold_margins(fitted), bits)
    else:
        latent, decisions = fit_auto(estimates, schema, progress=progress)
        settings |= decisions
        # Forbidden cells keep their noisy counts in the fit: thinning needs every count to carry the noise it states.
        copula = refined(hold_margins(latent), estimates, bits)
        settings["gain_over_independence"] = round(settings["gain_over_independence"], GAIN_DIGITS)
    own: dict[str, Any] = {"measured": measured, "copula": copula, "n_rows": estimates.n_rows, "settings": settings}
    if measured.tree is None or not isinstance(copula, LatentModel):
        return Model(**own)
    laws = fit_laws(measured, copula, fit_shapes(measured, copula.margins()))
    return TreeModel(**own, laws={table: as_stored(law, bits) for table, law in laws.items()})


def _spent(certificate: Certificate, equals: str = " = ") -> str:
    return f"epsilon{equals}{rounded_up(certificate.epsilon, 4)}, delta{equals}{rounded_up(certificate.delta, 3)}"


def _measured(certificate: Certificate) -> list[str]:
    """What was measured, one line for every stage and kind of table."""
    lines, groups = [], groupby(certificate.measurements, lambda each: (each.stage, each.kind, each.order))
    for (stage, kind, order), group in groups:
        entries = list(group)
        scales = sorted({f"{entry.scale:.4g}" for entry in entries}, key=float)
        spread = scales[0] if len(scales) == 1 else f"{scales[0]} to {scales[-1]}"
        number = sum(entry.tables for entry in entries)
        tables = f"{number:,} " if (number > 1 if kind else order) else ""
        where = "" if kind else f"stage {stage}: "
        lines.append(f"  {where}{tables}{entries[0].what}, noise of scale {spread} {entries[0].unit}")
    return lines


def query(model: Model | str | Path, predicate: str, *, level: float = DEFAULT_LEVEL, exact: bool = False) -> Answer:
    """How many rows satisfy a predicate, with error bars where it was measured: `sklar query` as a function.

    `exact` refuses to cut a bin.
    """
    return model_of(model).query(predicate, level=level, exact=exact)


def infer(model: Model | str | Path, question: str | Callable[[Any, Any], Any], **settings: Any) -> Inference:
    """The answer to a question such as "mean(hours) by sex", or what a function says, with honest errors.

    The settings are those of `Model.infer`: columns, level, target, scores (docs/inference.md).
    """
    return model_of(model).infer(question, **settings)


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

    target, given = None if out is None else check_target(out, (".html",)), model_of(model)
    name = Path(model).name if isinstance(model, str | Path) else f"{given.schema.name}.sklar"
    made = Report(name=name, html=publishable(given, file_name=name))
    if target is not None:
        made.save(target)
    return made


def model_of(given: Model | str | Path) -> Model:
    """The model that a caller gives, by value or as the path of its file."""
    from sklar.files.archive import load

    return load(given) if isinstance(given, str | Path) else given
