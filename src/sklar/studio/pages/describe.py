"""Step 2, describe: one card per column, the open decisions first; and what is said of the table as a whole."""

from __future__ import annotations

import math
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sklar.custodian.draft import Draft
from sklar.custodian.entries import accept_all, name_person, save
from sklar.custodian.review import (
    PROVENANCE,
    Choice,
    OpenRule,
    answer,
    answer_rule,
    complete,
    open_rules,
    questions,
    rule_entries,
)
from sklar.errors import SchemaError, SklarError
from sklar.public.person import Person
from sklar.public.rules import rule_text
from sklar.public.schema import Attribute, Schema
from sklar.studio.folder import Desk
from sklar.studio.guard import form_of
from sklar.studio.looks import Look
from sklar.studio.pages.cards import MOST_LEVELS_SHOWN, NOT_KNOWN, Card, card_of, mark_of, questions_about
from sklar.studio.pages.cost import column_cost, parsed
from sklar.studio.pages.frame import (
    Frame,
    Studio,
    desk_of,
    frame,
    go,
    plain,
    query_string,
    schema_text,
    show,
    table_words,
    tell,
)

PER_PAGE = 20
_WAIT_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tied:
    """A rule that waits for a decision, in words, with the entries that it would add."""

    rule: OpenRule
    number: int
    says: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Described:
    """The page."""

    frame: Frame
    desk: Desk
    rows: int | None
    epsilon: float
    reading: str
    cards: tuple[Card, ...]
    n_columns: int
    n_found: int
    waiting: int
    accepts: int
    page: int
    pages: int
    search: str
    only: str
    address: str
    left_out: tuple[tuple[str, str], ...]
    rules: tuple[str, ...]
    ties: tuple[Tied, ...]
    person: Person | None
    ids: tuple[str, ...]
    provenance: Mapping[str, str]


def describe(studio: Studio, request: Request) -> Response:
    """The cards of one page of columns."""
    desk = desk_of(studio, request)
    text = schema_text(studio, desk)
    if text is None:
        return go(f"/t/{desk.name}/open")
    try:
        schema = parsed(text)
    except SchemaError as error:
        return tell(studio, f"/t/{desk.name}/open", f"{desk.schema}: {error}", form={})
    look, reading = _look(studio, desk, schema)
    draft = None if look is None else look.draft
    params = request.query_params
    search, only, wanted = params.get("q", ""), params.get("only", ""), params.get("column")
    listed = [
        attribute
        for attribute in schema.attributes
        if search.lower() in attribute.name.lower() and (only != "open" or not attribute.reviewed)
    ]
    # The open decisions first; a card that was asked for before all.
    listed.sort(key=lambda attribute: (attribute.name != wanted, attribute.reviewed))
    pages = max(math.ceil(len(listed) / PER_PAGE), 1)
    page = min(max(int(params.get("page", "1")) if params.get("page", "1").isdigit() else 1, 1), pages)
    chosen = listed[(page - 1) * PER_PAGE : page * PER_PAGE]
    entries = schema.to_dict()["attributes"]
    asked = {each.name: mark_of(entries[each.name]) for each in chosen if not each.reviewed or each.name == wanted}
    about = questions_about(text, look, asked)
    note = studio.notes.find(params.get("note"))
    typed = {} if note is None else note.form
    rows = desk.rows if draft is None else draft.seen.rows
    view = Described(
        frame=frame(
            studio,
            request,
            title="Describe the columns",
            step="describe",
            desk=desk,
            private=True,
            commands=(
                f"sklar schema review {shlex.quote(desk.schema)} {table_words(desk)}",
                f"sklar schema check {shlex.quote(desk.schema)} {table_words(desk)}",
            ),
        ),
        desk=desk,
        rows=rows,
        epsilon=desk.epsilon,
        reading=reading,
        cards=tuple(
            card_of(schema, entries[each.name], each, about.get(each.name, (None, None)), desk.epsilon, rows, typed)
            for each in chosen
        ),
        n_columns=schema.n_attributes,
        n_found=len(listed),
        waiting=len(schema.not_reviewed),
        accepts=sum(each.provenance != "rows" for each in schema.attributes if not each.reviewed),
        page=page,
        pages=pages,
        search=search,
        only=only,
        address=f"/t/{desk.name}/describe?" + query_string(q=search, only=only),
        left_out=tuple((draft.left_out if draft else {}).items()),
        rules=tuple(rule_text(rule, schema.attributes) for rule in schema.rules),
        ties=_ties(text, draft),
        person=schema.person,
        ids=_ids(schema, draft),
        provenance=PROVENANCE,
    )
    return show("describe.html.j2", view)


def _look(studio: Studio, desk: Desk, schema: Schema) -> tuple[Look | None, str]:
    """What the rows show, where they have been read; else what to say of it."""
    try:
        look = studio.looks.at(desk, schema.reading, wait_s=_WAIT_S)
    except SklarError as error:
        return None, plain(studio, str(error))
    if look.draft is not None:
        if desk.rows != look.draft.seen.rows:
            studio.folder.save(desk, rows=look.draft.seen.rows)
        return look, ""
    if look.over.is_set():
        return None, plain(studio, look.problem)
    return None, f"The rows are being read ({look.rows:,} so far): reload to see what they show beside each question."


def _draft(studio: Studio, desk: Desk, schema: Schema) -> Draft | None:
    look, _ = _look(studio, desk, schema)
    return None if look is None else look.draft


def _ties(text: str, draft: Draft | None) -> tuple[Tied, ...]:
    if draft is None:
        return tuple(Tied(rule=rule, number=n, says=()) for n, rule in enumerate(open_rules(text)))
    return tuple(
        Tied(rule=rule, number=n, says=tuple(_spoken(entry) for entry in rule_entries(rule, text, draft)))
        for n, rule in enumerate(open_rules(text))
    )


def _spoken(entry: Mapping[str, Any]) -> str:
    """A rule in words."""
    if "forbid" in entry:
        (first, values), (second, others) = entry["forbid"].items()
        return f"there is no {first} = {' or '.join(values)} with {second} = {' or '.join(others)}"
    shown = [f"{key} goes with {value}" for key, value in list(entry["map"].items())[:8]]
    more = ", ..." if len(entry["map"]) > len(shown) else ""
    return f"{entry['determined_by']} determines {entry['attribute']}: {', '.join(shown)}{more}"


def _ids(schema: Schema, draft: Draft | None) -> tuple[str, ...]:
    """Columns that may say which rows are one person's: those that are no attribute first."""
    names = () if draft is None else tuple(column.name for column in draft.seen.columns if column.name)
    return tuple(sorted(names, key=lambda name: name in schema.names))


def decide(studio: Studio, request: Request) -> Response:
    """Answer the question about one column, and go on to the next one."""
    desk, form = desk_of(studio, request), form_of(request)
    name, text = form.get("column", ""), schema_text(studio, desk) or ""
    back = f"/t/{desk.name}/describe?" + query_string(q=form.get("q", ""), only=form.get("only", ""))
    try:
        schema = parsed(text)
        attribute = schema.attribute(name)
        if form.get("mark") != mark_of(schema.to_dict()["attributes"][name]):
            raise SchemaError(f"'{name}' was changed meanwhile, in another window or in the file. Look at it again.")
        draft = _draft(studio, desk, schema)
        changed = answer(text, name, _entry(text, attribute, draft, form))
        save(studio.folder.inside(desk.schema), changed)
    except SklarError as error:
        return tell(studio, f"{back}&{query_string(column=name)}#card", str(error), form=form)
    left = parsed(changed).not_reviewed
    said = f"'{name}' is left out." if name not in parsed(changed).names else f"'{name}' is decided."
    return tell(studio, f"{back}#cards", f"{said} {len(left)} to go." if left else f"{said} Every column is reviewed.")


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
    return _completed(choice, attribute, form)


def _completed(choice: Choice, attribute: Attribute, form: Mapping[str, str]) -> dict[str, Any] | None:
    if not choice.asks:
        return choice.entry
    entry = complete(choice, form.get(f"typed-{choice.key}", ""), attribute)
    if choice.asks == "edges" and form.get("points", "").strip():
        # Points stand on the same axis as edges, and are written as they are.
        entry["points"] = complete(choice, form["points"], attribute)["edges"]
    listed = form.get(f"special-{choice.key}")
    if listed is not None:
        entry.pop("special", None)
        entry |= {"special": _listed(listed)} if listed.strip() else {}
    return entry


def _listed(text: str) -> list[Any]:
    """Numbers and quoted texts, separated by commas, as a schema file writes them."""
    try:
        found: list[Any] = tomllib.loads(f"special = [{text}]")["special"]
    except ValueError:
        raise SchemaError(
            f'special values must be numbers or texts in quotes, such as 99999, "N", got {text}.'
        ) from None
    return found


def cost(studio: Studio, request: Request) -> Response:
    """What a column would cost with the answer that is being typed: asked for by the script, again and again."""
    desk, form = desk_of(studio, request), form_of(request)
    name, text = form.get("column", ""), schema_text(studio, desk) or ""
    try:
        schema = parsed(text)
        draft = _draft(studio, desk, schema)
        entry = _entry(text, schema.attribute(name), draft, form)
        if entry is None:
            return JSONResponse({"told": ["Costs nothing: it is left out, and no release has it."]})
        alone = Schema.from_dict({"attributes": {name: entry}}).attributes[0]
        # Rules may not fit the levels that are being typed; they are checked when the answer is given.
        tried = replace(
            schema,
            attributes=tuple(alone if each.name == name else each for each in schema.attributes),
            rules=() if schema.rules and alone != schema.attribute(name) else schema.rules,
        ).checked()
        rows = desk.rows if draft is None else draft.seen.rows
        told = (NOT_KNOWN,) if rows is None else column_cost(tried, name, desk.epsilon, rows, beside=True)
    except SklarError as error:
        return JSONResponse({"problem": str(error)})
    levels = list(alone.levels[:MOST_LEVELS_SHOWN]) if alone.domain != "private" and alone.binned else []
    return JSONResponse({"told": list(told), "levels": levels})


def accept(studio: Studio, request: Request) -> Response:
    """Accept what is proposed for all columns that are left."""
    desk = desk_of(studio, request)
    back = f"/t/{desk.name}/describe"
    try:
        text = schema_text(studio, desk) or ""
        save(studio.folder.inside(desk.schema), accept_all(text))
    except SklarError as error:
        return tell(studio, back, str(error), form=form_of(request))
    return tell(studio, back, "Every column is reviewed: what was proposed is accepted. The schema is public now.")


def decide_rule(studio: Studio, request: Request) -> Response:
    """Confirm a tie as a public rule, or decide against it."""
    desk, form = desk_of(studio, request), form_of(request)
    back, text = f"/t/{desk.name}/describe", schema_text(studio, desk) or ""
    try:
        rule = next(
            (
                each
                for each in open_rules(text)
                if (each.first, each.how, each.second) == (form.get("first"), form.get("how"), form.get("second"))
            ),
            None,
        )
        if rule is None:
            raise SchemaError("this rule was decided meanwhile. Look at the list again.")
        draft = _draft(studio, desk, parsed(text))
        entries = [] if form.get("public") != "yes" or draft is None else rule_entries(rule, text, draft)
        save(studio.folder.inside(desk.schema), answer_rule(text, rule, entries))
    except SklarError as error:
        return tell(studio, f"{back}#rules", str(error), form=form)
    said = (
        "The rule is public knowledge now: every released record honors it." if entries else "No rule was made of it."
    )
    return tell(studio, f"{back}#rules", said)


def set_person(studio: Studio, request: Request) -> Response:
    """Say which rows are one person's."""
    desk, form = desk_of(studio, request), form_of(request)
    back, text = f"/t/{desk.name}/describe", schema_text(studio, desk) or ""
    try:
        person: Person | None = None
        if form.get("person"):
            counted = form.get("rows", "")
            people = form.get("count") != "rows"
            if not people and not counted.isdigit():
                raise SchemaError(f"rows of each person must be a whole number, got {counted!r}.")
            person = Person(
                column=form["person"],
                count="people" if people else "rows",
                rows_per_person=1 if people else int(counted),
            )
        save(studio.folder.inside(desk.schema), name_person(text, person))
    except SklarError as error:
        return tell(studio, f"{back}#person", str(error), form=form)
    said = (
        "Each row is a person of its own."
        if person is None
        else f"Rows with the same {person.column} are one person's."
    )
    return tell(studio, f"{back}#person", said)
