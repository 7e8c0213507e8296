"""A schema file under review as a whole: accept what is proposed, name the person, save it with the right rights."""

from __future__ import annotations

import re
from pathlib import Path

from sklar.custodian.review import answer, answer_rule, open_rules, questions
from sklar.errors import SchemaError
from sklar.files.write import write_text
from sklar.public.person import PERSON_KEYS, Person, describe_person
from sklar.public.schema import Schema
from sklar.public.toml import toml_value

_PERSON_LINE = re.compile(rf"\s*({'|'.join(PERSON_KEYS)})\s*=")


def save(path: Path, text: str) -> None:
    """Save the file: for its owner alone while something in it waits for an answer."""
    write_text(path, text, private=bool(Schema.from_toml(text).not_reviewed or open_rules(text)))


def accept_all(text: str) -> str:
    """The file with every proposal that is left accepted, and without the rules that nobody has decided on.

    Entries that were read from the rows are not accepted so: nobody vouches for them unread.
    """
    waiting = questions(text)
    refused = [question.name for question in waiting if question.default is None]
    if refused:
        raise SchemaError(
            f"these entries were read from the rows, or nobody says where they are from: {', '.join(refused)}. "
            "--accept does not vouch for them: answer their questions one by one, without --accept."
        )
    for question in waiting:
        text = answer(text, question.name, question.choices[0].entry)
    for rule in open_rules(text):
        text = answer_rule(text, rule, ())
    return text


def name_person(text: str, person: Person | None) -> str:
    """The file with the column of ids that says which rows are one person's; None: each row is a person of its own.

    A column of ids is no attribute: where the file lists it as one, that entry goes.
    """
    if person is not None and person.column in Schema.from_toml(text).names:
        text = answer(text, person.column, None)
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.strip() == "[table]"), None)
    if start is None:
        lines = ["[table]", "", *lines]
        start = 0
    end = next((n for n in range(start + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    kept = [line for line in lines[start + 1 : end] if not _PERSON_LINE.match(line)]
    stated = [f"{key} = {toml_value(value)}" for key, value in describe_person(person).items()]
    last = max((number for number, line in enumerate(kept, start=1) if line.strip()), default=0)
    changed = "\n".join([*lines[: start + 1], *kept[:last], *stated, *kept[last:], *lines[end:]]) + "\n"
    if Schema.from_toml(changed).person != person:
        raise SchemaError("the person's lines could not be put into [table]. Edit the file by hand.")
    return changed
