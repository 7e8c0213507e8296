"""Step 2, who and what: whether a person can have several rows; then a line for each column, and one column's card.

A card has what was decided, or the question about it, with what the rows show and a picture of bins.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from markupsafe import Markup
from starlette.responses import JSONResponse, Response

from sklar.answer.report import svg
from sklar.answer.report.render import clean, percent
from sklar.custodian import review
from sklar.custodian.draft import Draft
from sklar.custodian.draft.columns import ColumnSummary
from sklar.custodian.review import Question, ReviewChoice, open_rules, rule_entries
from sklar.errors import SchemaError, SklarError
from sklar.machine.notebook import sentence
from sklar.machine.wording import failing, said
from sklar.public.description import toml_value
from sklar.public.rules import rule_text
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import Person
from sklar.studio.looks import TableLook
from sklar.studio.pages.cost import column_cost, column_noise, parsed
from sklar.studio.pages.visit import Visit, go

_PER_PAGE = 100
_WAIT_S = 1.5
_MOST_LEVELS_SHOWN = 40
_BARS, _SPARKS = 60, 12
# Columns of which the list can show those alone: what its entry must be.
_FILTERS: dict[str, Callable[[Attribute], bool]] = {
    "": lambda _: True,
    "open": lambda attribute: not attribute.reviewed,
    "wide": lambda attribute: attribute.private and attribute.binned,
    "rows": lambda attribute: attribute.known_from == "rows" or attribute.reviewed == "unread",
    # Of columns that a draft left out.
    "identifying": lambda _: False,
}
_FROM = {key: (key, words.partition(",")[0]) for key, words in review.PROVENANCE.items()}
# Kinds whose edges a person can drag: numbers, and days.
_DRAGGED = ("integer", "real", "year", "date")
# The question about a column and the picture of its bins; none about one that is decided.
About: TypeAlias = tuple[Question | None, dict[str, Any] | None]


def describe(visit: Visit) -> Response:
    """The question about people, the columns of one page, and the card of the column that was asked for."""
    text = visit.text
    if text is None:
        return go(visit.address("open"))
    try:
        schema = parsed(text)
    except SchemaError as error:
        return visit.tell(visit.address("open"), f"{visit.desk.schema}: {error}", form={})
    look, reading = _look(visit, schema)
    draft = None if look is None else look.draft
    search, only, column = visit.query("q"), visit.query("only"), visit.query("column")
    fits = _FILTERS.get(only, _FILTERS[""])
    listed = [each for each in schema.attributes if search.lower() in each.name.lower() and fits(each)]
    pages = max(math.ceil(len(listed) / _PER_PAGE), 1)
    page = min(max(int(visit.query("page", "1")) if visit.query("page", "1").isdigit() else 1, 1), pages)
    chosen = listed[(page - 1) * _PER_PAGE : page * _PER_PAGE]
    # The card that was asked for; else the first one of the page that waits, or the first one.
    card = next((each for each in schema.attributes if each.name == column), None)
    card = card or next((each for each in chosen if not each.reviewed), chosen[0] if chosen else None)
    entries = schema.to_dict()["attributes"]
    asked = card is not None and (not card.reviewed or card.name == column)
    about = _about(text, look, card.name, _mark(entries[card.name])) if card and asked else (None, None)
    names = () if draft is None else tuple(each.name for each in draft.columns if each.name)
    return visit.page(
        "describe.html.j2",
        "Who and what",
        "describe",
        private=True,
        commands=tuple(f"sklar schema {verb} {visit.schema_path} {visit.table}" for verb in ("review", "check")),
        rows=visit.desk.rows,
        epsilon=visit.desk.epsilon,
        reading=reading,
        people=review.people(text, draft),
        lines=[_line(visit, schema, each, look) for each in chosen],
        card=card and _card(visit, schema, card, entries[card.name], about),
        schema=schema,
        n_found=len(listed),
        accepts=sum(each.provenance != "rows" for each in schema.attributes if not each.reviewed),
        page=page,
        pages=pages,
        search=search,
        only=only,
        address=visit.address("describe", q=search, only=only) + ("" if search or only else "?"),
        left_out=[each for each in review.left_out(schema, draft).items() if search.lower() in each[0].lower()],
        rules=[rule_text(rule, schema.attributes) for rule in schema.rules],
        ties=[
            {
                "rule": rule,
                "says": [review.rule_words(entry) for entry in (rule_entries(rule, text, draft) if draft else ())],
            }
            for rule in open_rules(text)
        ],
        # Those that are no attribute first.
        ids=sorted(names, key=lambda name: (name not in schema.ask_person, name in schema.names)),
    )


def _line(visit: Visit, schema: Schema, attribute: Attribute, look: TableLook | None) -> dict[str, Any]:
    """The line of a column: what it is, what its values look like (PRIVATE), and whether its counts drown in noise."""
    rows, name, noise = visit.desk.rows, attribute.name, ("", "")
    if rows is not None and name not in schema.determined:
        noise = column_noise(schema, name, visit.desk.epsilon, rows)
    shown = {} if look is None else look.shown
    key = ("spark", name, attribute.kind, attribute.special)
    if look is not None and key not in shown and look.draft is not None:
        shown[key] = _spark(attribute, look.draft.column(name))
    return {"attribute": attribute, "badge": _badge(attribute), "noise": noise, "spark": shown.get(key, ("", ""))}


def _badge(attribute: Attribute) -> tuple[str, str]:
    """Where an entry comes from: a class of the style sheet, and words."""
    if not attribute.reviewed:
        return "open", "needs you"
    return ("rows", "accepted unread") if attribute.reviewed == "unread" else _FROM[attribute.known_from]


def _spark(attribute: Attribute, summary: ColumnSummary | None) -> tuple[str, str]:
    """A small picture of a column's values, as the path of its bars, and what lies at its ends: PRIVATE."""
    if summary is None or not summary.counts or attribute.part_of is not None:
        return "", f"part of {attribute.column}" * (attribute.part_of is not None)
    points, times = summary.points(attribute)
    bars, ends = [number for _, number in summary.counts.most_common(_SPARKS)], f"{len(summary.counts):,} different"
    if points.size:
        edges, _ = svg.spread(attribute, points, times, 2 * _SPARKS, bent=False)
        bars, held = (
            np.histogram(points, edges, weights=times)[0].tolist(),
            points[(edges[0] <= points) & (points <= edges[-1])],
        )
        low, high = (svg.tick_text(attribute, float(end)) for end in (held.min(), held.max()))
        ends = f"{'most ' * bool(sum(bars) < times.sum())}{low} to {high}"
    wide, most = 120 / max(len(bars), _SPARKS), max(bars)
    path = (f"M{wide * at:.1f} 24V{24 * (1 - bar / most):.1f}h{wide - 1:.1f}V24z" for at, bar in enumerate(bars) if bar)
    return "".join(path), ends


def _about(text: str, look: TableLook | None, name: str, mark: str) -> About:
    """The question about a column, of which `mark` is its entry's, and a picture of its bins: made once."""
    shown, draft = ({}, None) if look is None else (look.shown, look.draft)
    key = (name, mark, open_rules(text))
    if key not in shown:
        [question] = review.questions(text, draft, about={name})
        seen = None if draft is None else draft.column(name)
        shown[key] = question, _picture(parsed(text).attribute(name), seen)
    found: About = shown[key]
    return found


def _card(visit: Visit, schema: Schema, attribute: Attribute, entry: Mapping[str, Any], about: About) -> dict[str, Any]:
    """The card of one column: what was decided, or the question about it with what the rows show; and its cost."""
    keys = [f"{key} = {toml_value(value)}" for key, value in entry.items() if key not in ("reviewed", "provenance")]
    typed = {} if visit.note is None or visit.note.form.get("column") != attribute.name else visit.note.form
    question, picture = about
    return {
        "attribute": attribute,
        "place": schema.names.index(attribute.name),
        "badge": _badge(attribute),
        "stated": ", ".join(keys),
        # Templates would take the ends of lines for control characters.
        "toml": Markup("\n").join(clean(line) for line in typed.get("toml", "\n".join(keys)).splitlines()),
        "mark": _mark(entry),
        "cost": column_cost(schema, attribute.name, visit.desk.epsilon, visit.desk.rows),
        "question": question,
        "picture": picture,
        "bins": json.dumps(picture),
        "typed": typed,
        "levels": attribute.levels[:_MOST_LEVELS_SHOWN] if not attribute.private else (),
        "special": ", ".join(toml_value(value) for value in attribute.special),
    }


def _mark(entry: Mapping[str, Any]) -> str:
    """A mark of an entry as a page has shown it: a form about another one is refused."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _picture(attribute: Attribute, summary: ColumnSummary | None) -> dict[str, Any] | None:
    """Bins as a picture for the script: bars of exact counts (PRIVATE) on an axis without the outer half percent."""
    if attribute.kind not in _DRAGGED or not attribute.edges:
        return None
    low, high = float(attribute.edges[0]), float(attribute.edges[-1])
    points, times = (np.empty(0), np.empty(0)) if summary is None else summary.points(attribute)
    shown: dict[str, Any] = {"bars": [], "seen": []}
    if points.size:
        edges, _ = svg.spread(attribute, points, times, _BARS, bent=False)
        bars = np.histogram(points, edges, weights=times)[0]
        # Wide bounds would squeeze what there is to see into one bar.
        if high - low > 4 * (edges[-1] - edges[0]):
            low, high = float(edges[0]), float(edges[-1])
        low, high = min(low, float(edges[0])), max(high, float(edges[-1]))
        shares = (bars / times.sum()).tolist()
        shown["bars"] = list(zip(edges.tolist(), edges[1:].tolist(), shares, map(percent, shares), strict=False))
        shown["seen"] = [float(points.min()), float(points.max())]
    stated = [attribute.axis.text(edge) for edge in attribute.edges]
    ticks = [(value, svg.tick_text(attribute, value)) for value in svg.ticks(attribute, low, high, 0.0)]
    shown |= {"kind": attribute.kind, "low": low, "high": high, "ticks": ticks}
    return shown | {"edges": stated, "bounds": attribute.private}


def _look(visit: Visit, schema: Schema) -> tuple[TableLook | None, str]:
    """What the rows show, where they have been read; else what to say of it."""
    try:
        look = visit.studio.looks.at(visit.desk, schema.reading, wait_s=_WAIT_S)
    except SklarError as error:
        return None, visit.plain(str(error))
    if look.draft is not None:
        if visit.desk.rows != (rows := look.draft.counted(schema.person)):
            visit.desk = visit.folder.save(visit.desk, rows=rows)
        return look, ""
    if look.over.is_set():
        return None, visit.plain(look.problem)
    return None, f"The rows are being read ({look.rows:,} so far): reload to see what they show beside each question."


def _draft(visit: Visit) -> Draft | None:
    look, _ = _look(visit, visit.schema)
    return None if look is None else look.draft


def _save(visit: Visit, text: str) -> None:
    review.save(visit.folder.inside(visit.desk.schema), text)


def decide(visit: Visit) -> Response:
    """Answer the question about one column, and go on to the next one."""
    form, text = visit.form, visit.text or ""
    name, listed = form.get("column", ""), {"q": form.get("q", ""), "only": form.get("only", "")}
    visit.back = visit.address("describe", **listed, column=name) + "#card"
    attribute = visit.schema.attribute(name)
    if form.get("mark") != _mark(visit.schema.to_dict()["attributes"][name]):
        raise SchemaError(f"'{name}' was changed meanwhile, in another window or in the file. Look at it again.")
    changed = review.answer(text, name, _entry(text, attribute, _draft(visit), form))
    _save(visit, changed)
    made = parsed(changed)
    said = f"'{name}' is left out." if name not in made.names else f"'{name}' is decided."
    rest = f"{len(made.not_reviewed)} to go." if made.not_reviewed else " ".join(map(sentence, made.standing))
    return visit.tell(visit.address("describe", **listed) + "#cards", f"{said} {rest}")


def _entry(text: str, attribute: Attribute, draft: Draft | None, form: Mapping[str, str]) -> dict[str, Any] | None:
    """The entry that a form asks for: one of the question's choices, or the keys that the custodian wrote."""
    if form.get("choice") == "toml":
        try:
            entry = tomllib.loads(form.get("toml", ""))
        except ValueError as error:
            raise SchemaError(f"attribute '{attribute.name}' is not valid TOML: {error}.") from None
        stated = form.get("provenance", "public")
        return {key: value for key, value in entry.items() if key != "reviewed"} | {"provenance": stated}
    question = next(iter(review.questions(text, draft, about={attribute.name})))
    choice = next((each for each in question.choices if each.key == form.get("choice")), None)
    if choice is None:
        raise SchemaError(f"choose one of the answers about '{attribute.name}' first.")
    return _completed(choice, attribute, form) if choice.asks else choice.entry


def _completed(choice: ReviewChoice, attribute: Attribute, form: Mapping[str, str]) -> dict[str, Any]:
    """The entry of a choice with what was typed beside it."""
    entry = review.complete(choice, form.get(f"typed-{choice.key}", ""), attribute)
    if choice.asks == "edges" and form.get("points", "").strip():
        # Points stand on the same axis as edges, and are written as they are.
        entry["points"] = review.complete(choice, form["points"], attribute)["edges"]
    special = form.get(f"special-{choice.key}")
    if special is not None:
        entry.pop("special", None)
        wrong = f'special values must be numbers or texts in quotes, such as 99999, "N", got {special}.'
        with failing(SchemaError, wrong, ValueError):
            # Numbers and quoted texts, separated by commas, as a schema file writes them.
            entry |= tomllib.loads(f"special = [{special}]") if special.strip() else {}
    return entry


def cost(visit: Visit) -> Response:
    """What a column would cost with the answer that is being typed: asked for by the script, again and again."""
    name = visit.form.get("column", "")
    try:
        schema, draft = visit.schema, _draft(visit)
        entry = _entry(visit.text or "", schema.attribute(name), draft, visit.form)
        if entry is None:
            return JSONResponse({"told": ["Costs nothing: it is left out, and no release has it."]})
        alone = Schema.from_dict({"attributes": {name: entry}}).attributes[0]
        # Rules may not fit the levels that are being typed; they are checked when the answer is given.
        tried = replace(
            schema,
            attributes=tuple(alone if each.name == name else each for each in schema.attributes),
            rules=() if schema.rules and alone != schema.attribute(name) else schema.rules,
        ).checked()
        return JSONResponse({"told": column_cost(tried, name, visit.desk.epsilon, visit.desk.rows)})
    except SklarError as error:
        return JSONResponse({"problem": str(error)})


def accept(visit: Visit) -> Response:
    """Accept what is proposed for all columns that are left."""
    visit.back = visit.address("describe")
    if visit.schema.ask_person:
        raise SchemaError(said("studio.who_first"))
    _save(visit, review.accept_all(visit.text or ""))
    return visit.tell(visit.back, "Accepted unread: what was proposed stands. Every report of a release says so.")


def bring_back(visit: Visit) -> Response:
    """Put a column into the schema that the draft left out, as an open question."""
    visit.back, name, draft = visit.address("describe", only="identifying"), visit.form.get("column", ""), _draft(visit)
    if draft is None:
        raise SchemaError("the rows have not been read yet. Wait until they are.")
    _save(visit, review.bring_back(visit.text or "", draft, name))
    return visit.tell(visit.address("describe", column=name) + "#card", f"'{name}' is back: decide on it.")


def decide_rule(visit: Visit) -> Response:
    """Confirm a tie as a public rule, or decide against it."""
    visit.back = visit.address("describe") + "#rules"
    form, text = visit.form, visit.text or ""
    stated = (form.get("first"), form.get("how"), form.get("second"))
    rule = next((each for each in open_rules(text) if (each.first, each.how, each.second) == stated), None)
    if rule is None:
        raise SchemaError("this rule was decided meanwhile. Look at the list again.")
    draft = _draft(visit)
    entries = [] if form.get("public") != "yes" or draft is None else rule_entries(rule, text, draft)
    _save(visit, review.answer_rule(text, rule, entries))
    made = "The rule is public knowledge now: every released record honors it."
    return visit.tell(visit.back, made if entries else "No rule was made of it.")


def set_person(visit: Visit) -> Response:
    """Say which rows are one person's."""
    visit.back = visit.address("describe") + "#person"
    column, rows, people = visit.form.get("person"), visit.form.get("rows", ""), visit.form.get("count") != "rows"
    if column and not people and not rows.isdigit():
        raise SchemaError(f"rows of each person must be a whole number, got {rows!r}.")
    person = None
    if column:
        person = Person(column=column, count="people" if people else "rows", rows_per_person=1 if people else int(rows))
    _save(visit, review.name_person(visit.text or "", person))
    said = f"Rows with the same {column} are one person's." if column else "Each row is a person of its own."
    return visit.tell(visit.back, said)


def set_target(visit: Visit) -> Response:
    """Say what releases are for."""
    visit.back, target = visit.address("describe") + "#target", visit.form.get("target", "")
    _save(visit, review.say_target(visit.text or "", target))
    return visit.tell(visit.back, f"Releases are for {target}." if target else "Releases favor no column.")
