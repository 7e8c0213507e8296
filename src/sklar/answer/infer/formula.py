"""Questions about two attributes and more: correlations, tests of independence, formulas."""

from __future__ import annotations

import math

import numpy as np

from sklar.answer.infer.effects import Floats
from sklar.answer.infer.independence import independence
from sklar.answer.infer.inquiry import Codes, Inquiry
from sklar.answer.infer.onestep import Linearized
from sklar.answer.infer.regression import (
    CLEAR,
    Design,
    Term,
    clearness,
    code_levels,
    correlate,
    indicators,
    linearize_linear,
    linearize_logistic,
)
from sklar.answer.infer.result import Inference
from sklar.answer.infer.scores import is_number
from sklar.answer.predicate import QueryError, attributes_of, traced


def answer_correlation(inquiry: Inquiry) -> Inference:
    """`corr(x, y)`."""
    first, second = inquiry.asked.names
    one, two = inquiry.scores(first), inquiry.scores(second)

    def columns(codes: Codes) -> tuple[Floats, Floats, Floats]:
        known = inquiry.column(codes, first, one.known) * inquiry.column(codes, second, two.known)
        kept = known * inquiry.holds(inquiry.asked.given, codes)
        return inquiry.column(codes, first, one.filled), inquiry.column(codes, second, two.filled), kept

    reference = inquiry.reference
    here = columns(reference.codes)
    model = correlate(*here, reference.union)
    by_fit = np.array([[correlate(*here, weights).value] for weights in reference.weights])

    def influence(codes: Codes) -> Floats:
        return model.influence(*(here if codes is reference.codes else columns(codes)))[:, None]

    found = inquiry.one_step(Linearized(values=np.array([model.value]), by_fit=by_fit, influence=influence))
    figure = inquiry.figure("correlation", float(found.values[0]), np.ones(1), found, tested=True)
    names = " and ".join(inquiry.model.schema.names[i] for i in (first, second))
    return inquiry.inference(f"correlation of {names}", [figure])


def answer_independence(inquiry: Inquiry) -> Inference:
    """`independent(x, y)`."""
    schema = inquiry.model.schema
    names = " and ".join(f"'{schema.names[i]}'" for i in inquiry.asked.names)
    if len(inquiry.where) < 2:
        raise QueryError(f"{names} must be measured apart, and a rule determines one by the other. Name another.")
    if min(inquiry.effects.sizes) < 2:
        raise QueryError(f"{names} must have two levels or more each, to depend on each other. Name another.")
    union = inquiry.reference.union
    margins = tuple(inquiry.reference.table((i,), union) for i in inquiry.where)
    test = independence(inquiry.effects, (margins[0], margins[1]), population=inquiry.population)
    determined = [schema.names[i] for i in inquiry.asked.names if schema.names[i] in schema.determined]
    for name in determined:
        inquiry.notes.append(f"'{name}' was not measured; tested is '{schema.determined[name]}', which determines it")
    return inquiry.inference(f"independence of {names.replace(chr(39), '')}", test=test)


def answer_formula(inquiry: Inquiry) -> Inference:
    """`y ~ x + z`: a linear regression of a number, a logistic one of what has two values or is a predicate."""
    asked, schema = inquiry.asked, inquiry.model.schema
    outcome, said, logistic = _outcome(inquiry)
    regressors = tuple(_regressor(inquiry, i) for i in asked.names)
    tied = [i for i in asked.names if inquiry.source(i) == outcome.attribute]
    if tied:
        raise QueryError(f"the outcome is decided by '{schema.names[tied[0]]}' or decides it. Leave that name out.")
    pairs = {tuple(sorted({outcome.attribute, term.attribute})) for term in regressors}
    if not pairs <= set(inquiry.effects.by_set):
        raise QueryError("a regression needs two-way tables, and the model holds none. Ask for means or shares.")
    given = None if asked.given is None else lambda codes: inquiry.holds(asked.given, codes)
    design = Design(where=inquiry.where, outcome=outcome, regressors=regressors, given=given)
    clear = clearness(design, inquiry.effects, inquiry.reference)
    if clear < CLEAR:
        raise QueryError(
            f"the smallest eigenvalue of the regressors' moment matrix must be at least {CLEAR:g} of its standard "
            f"errors, got {clear:.1f}: noise hides how the regressors vary together. Name fewer regressors, or use a "
            "release with a larger epsilon."
        )
    linearize = linearize_logistic if logistic else linearize_linear
    found = inquiry.one_step(linearize(design, inquiry.reference))
    slopes = np.eye(found.values.size)
    figures = [
        inquiry.figure(name, float(value), slope, found, tested=number > 0)
        for number, (name, value, slope) in enumerate(zip(design.names, found.values, slopes, strict=True))
    ]
    if not all(term.known.all() for term in (design.outcome, *design.regressors)):
        inquiry.notes.append("rows in which one of these attributes is missing are left out")
    kind = "logistic regression of the log odds of" if logistic else "linear regression of"
    names = ", ".join(schema.names[i] for i in asked.names)
    return inquiry.inference(f"{kind} {said} on {names}", figures)


def _outcome(inquiry: Inquiry) -> tuple[Term, str, bool]:
    """The outcome's term, in words, and whether it is a yes or no."""
    asked, schema = inquiry.asked, inquiry.model.schema
    if asked.event is not None:
        over = attributes_of(traced(asked.event, schema))
        if len(over) > 1:
            raise QueryError(
                f"an outcome is a predicate about one attribute, got one about {len(over)}. Ask about one."
            )
        (source,) = over
        size = int(inquiry.model.measured_schema.sizes[source])
        codes = np.zeros((size, len(inquiry.where)), dtype=np.int64)
        codes[:, inquiry.where.index(source)] = np.arange(size)
        column = inquiry.holds(asked.event, codes)[:, None]
        return Term(attribute=source, columns=column, names=("",), known=np.ones(size)), asked.event_text, True
    (index,) = asked.outcome
    attribute = schema.attributes[index]
    if is_number(attribute, inquiry.declared) and (attribute.kind != "boolean" or attribute.name in inquiry.declared):
        own = inquiry.scores(index)
        return _term(inquiry, index, own.filled[:, None], (attribute.name,), own.known), attribute.name, False
    values = attribute.n_values
    if values != 2:
        raise QueryError(
            f"an outcome must be a number or have two values, and '{attribute.name}' has {values:,}. Ask about one of "
            f"them: {attribute.name} = '{attribute.levels[0]}' ~ ..."
        )
    known = (np.arange(attribute.n_levels) < values).astype(np.float64)
    column = (np.arange(attribute.n_levels) == 1).astype(np.float64)
    said = f"{attribute.name} = {attribute.levels[1]}"
    return _term(inquiry, index, column[:, None], (attribute.name,), known), said, True


def _regressor(inquiry: Inquiry, index: int) -> Term:
    """A number as one column, categories as one column each, but for the first; what is missing is left out."""
    attribute = inquiry.model.schema.attributes[index]
    if is_number(attribute, inquiry.declared):
        own = inquiry.scores(index)
        return _term(inquiry, index, own.filled[:, None], (attribute.name,), own.known)
    known = np.ones(attribute.n_levels)
    if attribute.missing_code is not None:
        known[attribute.missing_code] = 0.0
    eye = np.eye(attribute.n_levels)
    columns = {attribute.levels[k]: inquiry.over_source(index, eye[k]) for k in np.flatnonzero(known)}
    source = inquiry.source(index)
    margin = inquiry.effects.by_set[(source,)]
    shares = 1 / margin.values.size + margin.values
    coding = code_levels(columns, shares, math.sqrt(margin.variance))
    found, names = indicators(coding, columns)
    told = f"'{attribute.name}' is compared with '{coding.reference}'"
    if coding.rare:
        listed = ", ".join(coding.rare[:6]) + (" and others" if len(coding.rare) > 6 else "")
        told += f"; too rare for a coefficient of their own: {listed}"
        told += ", counted as that level" if coding.joined else ", taken together" if len(coding.rare) > 1 else ""
    inquiry.notes.append(told)
    return Term(
        attribute=source,
        columns=found,
        names=tuple(f"{attribute.name} = {name}" for name in names),
        known=inquiry.over_source(index, known),
    )


def _term(inquiry: Inquiry, index: int, columns: Floats, names: tuple[str, ...], known: Floats) -> Term:
    return Term(
        attribute=inquiry.source(index),
        columns=inquiry.over_source(index, columns),
        names=names,
        known=inquiry.over_source(index, known),
    )
