"""Step 2, describe: one card per column, the open decisions first; and what is said of the table as a whole."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import JSONResponse, Response

from sklar.custodian.draft import Draft
from sklar.custodian.review import (
    PROVENANCE,
    ReviewChoice,
    accept_all,
    answer,
    answer_rule,
    complete,
    name_person,
    open_rules,
    questions,
    rule_entries,
    rule_words,
    save,
)
from sklar.errors import SchemaError, SklarError
from sklar.public.rules import rule_text
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import Person
from sklar.studio.looks import TableLook
from sklar.studio.pages.cards import MOST_LEVELS_SHOWN, NOT_KNOWN, card_of, mark_of, questions_about
from sklar.studio.pages.cost import column_cost, parsed
from sklar.studio.pages.visit import Visit, go

PER_PAGE = 20
_WAIT_S = 1.5


def describe(visit: Visit) -> Response:
    """The cards of one page of columns."""
    desk, text = visit.desk, visit.text
    if text is None:
        return go(visit.address("open"))
    try:
        schema = parsed(text)
    except SchemaError as error:
        return visit.tell(visit.address("open"), f"{desk.schema}: {error}", form={})
    look, reading = _look(visit, schema)
    draft = None if look is None else look.draft
    search, only, column = visit.query("q"), visit.query("only"), visit.query("column")
    listed = [
        attribute
        for attribute in schema.attributes
        if search.lower() in attribute.name.lower() and (only != "open" or not attribute.reviewed)
    ]
    # The open decisions first; a card that was asked for before all.
    listed.sort(key=lambda attribute: (attribute.name != column, attribute.reviewed))
    pages = max(math.ceil(len(listed) / PER_PAGE), 1)
    page = min(max(int(visit.query("page", "1")) if visit.query("page", "1").isdigit() else 1, 1), pages)
    chosen = listed[(page - 1) * PER_PAGE : page * PER_PAGE]
    entries = schema.to_dict()["attributes"]
    marks = {each.name: mark_of(entries[each.name]) for each in chosen if not each.reviewed or each.name == column}
    about = questions_about(text, look, marks)
    typed = {} if visit.note is None else visit.note.form
    rows = desk.rows if draft is None else draft.rows
    names = () if draft is None else tuple(each.name for each in draft.columns if each.name)
    return visit.page(
        "describe.html.j2",
        "Describe the columns",
        "describe",
        private=True,
        commands=tuple(f"sklar schema {verb} {visit.schema_path} {visit.table}" for verb in ("review", "check")),
        rows=rows,
        epsilon=desk.epsilon,
        reading=reading,
        cards=[
            card_of(schema, entries[each.name], each, about.get(each.name, (None, None)), desk.epsilon, rows, typed)
            for each in chosen
        ],
        n_columns=schema.n_attributes,
        n_found=len(listed),
        waiting=len(schema.not_reviewed),
        accepts=sum(each.provenance != "rows" for each in schema.attributes if not each.reviewed),
        page=page,
        pages=pages,
        search=search,
        only=only,
        address=visit.address("describe", q=search, only=only) + ("" if search or only else "?"),
        left_out=() if draft is None else draft.left_out.items(),
        rules=[rule_text(rule, schema.attributes) for rule in schema.rules],
        ties=[
            {"rule": rule, "says": [rule_words(entry) for entry in (rule_entries(rule, text, draft) if draft else ())]}
            for rule in open_rules(text)
        ],
        person=schema.person,
        # Those that are no attribute first.
        ids=sorted(names, key=lambda name: name in schema.names),
        provenance=PROVENANCE,
    )


def _look(visit: Visit, schema: Schema) -> tuple[TableLook | None, str]:
    """What the rows show, where they have been read; else what to say of it."""
    try:
        look = visit.studio.looks.at(visit.desk, schema.reading, wait_s=_WAIT_S)
    except SklarError as error:
        return None, visit.plain(str(error))
    if look.draft is not None:
        if visit.desk.rows != look.draft.rows:
            visit.folder.save(visit.desk, rows=look.draft.rows)
        return look, ""
    if look.over.is_set():
        return None, visit.plain(look.problem)
    return None, f"The rows are being read ({look.rows:,} so far): reload to see what they show beside each question."


def _draft(visit: Visit) -> Draft | None:
    look, _ = _look(visit, visit.schema)
    return None if look is None else look.draft


def _save(visit: Visit, text: str) -> None:
    save(visit.folder.inside(visit.desk.schema), text)


def decide(visit: Visit) -> Response:
    """Answer the question about one column, and go on to the next one."""
    form, text = visit.form, visit.text or ""
    name, listed = form.get("column", ""), {"q": form.get("q", ""), "only": form.get("only", "")}
    visit.back = visit.address("describe", **listed, column=name) + "#card"
    attribute = visit.schema.attribute(name)
    if form.get("mark") != mark_of(visit.schema.to_dict()["attributes"][name]):
        raise SchemaError(f"'{name}' was changed meanwhile, in another window or in the file. Look at it again.")
    changed = answer(text, name, _entry(text, attribute, _draft(visit), form))
    _save(visit, changed)
    left = parsed(changed).not_reviewed
    said = f"'{name}' is left out." if name not in parsed(changed).names else f"'{name}' is decided."
    rest = f"{len(left)} to go." if left else "Every column is reviewed."
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
    question = next(iter(questions(text, draft, about={attribute.name})))
    choice = next((each for each in question.choices if each.key == form.get("choice")), None)
    if choice is None:
        raise SchemaError(f"choose one of the answers about '{attribute.name}' first.")
    return _completed(choice, attribute, form) if choice.asks else choice.entry


def _completed(choice: ReviewChoice, attribute: Attribute, form: Mapping[str, str]) -> dict[str, Any]:
    """The entry of a choice with what was typed beside it."""
    entry = complete(choice, form.get(f"typed-{choice.key}", ""), attribute)
    if choice.asks == "edges" and form.get("points", "").strip():
        # Points stand on the same axis as edges, and are written as they are.
        entry["points"] = complete(choice, form["points"], attribute)["edges"]
    special = form.get(f"special-{choice.key}")
    if special is not None:
        entry.pop("special", None)
        try:
            # Numbers and quoted texts, separated by commas, as a schema file writes them.
            entry |= tomllib.loads(f"special = [{special}]") if special.strip() else {}
        except ValueError:
            raise SchemaError(
                f'special values must be numbers or texts in quotes, such as 99999, "N", got {special}.'
            ) from None
    return entry


def cost(visit: Visit) -> Response:
    """What a column would cost with the answer that is being typed: asked for by the script, again and again."""
    desk, name = visit.desk, visit.form.get("column", "")
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
        rows = desk.rows if draft is None else draft.rows
        told = (NOT_KNOWN,) if rows is None else column_cost(tried, name, desk.epsilon, rows, beside=True)
    except SklarError as error:
        return JSONResponse({"problem": str(error)})
    levels = list(alone.levels[:MOST_LEVELS_SHOWN]) if alone.domain != "private" and alone.binned else []
    return JSONResponse({"told": list(told), "levels": levels})


def accept(visit: Visit) -> Response:
    """Accept what is proposed for all columns that are left."""
    visit.back = visit.address("describe")
    _save(visit, accept_all(visit.text or ""))
    said = "Every column is reviewed: what was proposed is accepted. The schema is public now."
    return visit.tell(visit.back, said)


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
    _save(visit, answer_rule(text, rule, entries))
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
    _save(visit, name_person(visit.text or "", person))
    said = f"Rows with the same {column} are one person's." if column else "Each row is a person of its own."
    return visit.tell(visit.back, said)
