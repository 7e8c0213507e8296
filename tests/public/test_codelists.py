"""Public lists: they are whole, and no column is taken for one by chance."""

from __future__ import annotations

import random

import pytest

from sklar.public.codelists import CODE_LISTS, find_list, natural, truth_texts, words_of


def test_lists_are_whole() -> None:
    sizes = {known.what: len(known.values) for known in CODE_LISTS}
    assert sizes["countries (ISO 3166, two letters)"] == sizes["countries (ISO 3166, three letters)"] == 249
    assert (sizes["months"], sizes["days of the week"]) == (12, 7)
    states = next(known for known in CODE_LISTS if known.what == "states of the USA")
    assert len(states.values) == 50 + 1 + 5
    for known in CODE_LISTS:
        assert len(set(known.values)) == len(known.values)


@pytest.mark.parametrize(
    ("name", "texts", "what"),
    [
        ("State", {"AL", "TX"}, "states of the USA"),
        ("home_state", {"ca", "ny"}, "states of the USA"),
        ("country", {"DE", "FR"}, "countries (ISO 3166, two letters)"),
        ("x", {"DEU", "FRA", "ITA", "ESP", "POL", "USA", "CAN", "MEX"}, "countries (ISO 3166, three letters)"),
        ("sex", {"Male", "Female"}, "sexes"),
        ("x", {"F", "M"}, "sexes"),
        ("month", {"1", "12"}, "months"),
        ("x", {"Jan", "Feb", "May"}, "months"),
        ("x", {"MONDAY", "SUNDAY"}, "days of the week"),
        ("grade", {"AL", "TX"}, None),
        ("x", {"1", "12"}, None),
        ("sex", {"F", "M", "?"}, None),
        ("country", {"DE", "QQ"}, None),
        ("code", {"d", "m"}, None),
    ],
)
def test_what_is_recognized(name: str, texts: set[str], what: str | None) -> None:
    known = find_list(name, texts)
    assert (None if known is None else known.what) == what
    assert known is None or texts <= set(known.values)


@pytest.mark.parametrize(
    ("texts", "pair"),
    [
        ({"Y", "N"}, ("N", "Y")),
        ({"yes", "no"}, ("no", "yes")),
        ({"TRUE", "FALSE"}, ("FALSE", "TRUE")),
        ({"Ja", "Nein"}, ("Nein", "Ja")),
        ({"0", "1"}, ("0", "1")),
        ({"y", "No"}, None),
        ({"Y"}, None),
    ],
)
def test_yes_and_no_keep_their_texts(texts: set[str], pair: tuple[str, str] | None) -> None:
    assert truth_texts(texts) == pair


def test_codes_sort_as_people_do() -> None:
    wanted = ["1", "2", "10", "11", "20", "a1", "a2", "a10", "b"]
    shuffled = random.Random(1).sample(wanted, len(wanted))
    assert sorted(shuffled, key=natural) == wanted
    assert sorted(["9" * 5_000, "8" * 5_000], key=natural)[0].startswith("8")


def test_words_of_names() -> None:
    assert words_of("PassengerId") == {"passenger", "id"}
    assert words_of("HTTPServer_name2") == {"http", "server", "name"}
