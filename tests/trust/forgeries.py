"""Forged releases: consistent, written byte by byte as Sklar writes them. Each is refused for what it is, or listed."""

from __future__ import annotations

import io
import json
import math
import struct
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.files.archive import member
from sklar.kernel.queries import Parities, Tables
from sklar.kernel.theorems import chance_of_one, round_up_scale
from sklar.public.schema import Schema
from sklar.rows.encode import encode_column
from tests.linked import days, exact_of, in_order, tables
from tests.trust import forge
from tests.trust.conftest import BITS, ROWS, SCHEMA, bits, table
from tests.trust.forge import Arrays, Change, Document, put, tables_of

CODES = [encode_column(column, attribute) for column, attribute in zip(table(), SCHEMA.attributes, strict=True)]
# Exact tables of the rows.
ONE_WAY, PAIRS = (Tables(cells=SCHEMA.cells, order=order).count(CODES) for order in (1, 2))


def without_noise(document: Document, arrays: Arrays) -> None:
    for order, exact in ((1, ONE_WAY), (2, PAIRS)):
        arrays |= dict.fromkeys(tables_of(document, order), exact)


def parities_exact(document: Document, arrays: Arrays) -> None:
    """Both looks at parities without noise: they agree."""
    for number, entry in enumerate(document["blocks"]):
        query = Parities(cells=BITS.cells, orders=entry["orders"])
        arrays[f"block{number}"] = query.count(bits().to_numpy().T)


def scaled(factor: float) -> Change:
    def change(document: Document, arrays: Arrays) -> None:
        forge.rescale(document, arrays, factor)
        forge.state_what_it_costs(document, arrays)

    return change


def searches(document: Document, about: str | None = None) -> list[int]:
    """The numbers of the blocks of all searches, or of those for one attribute."""
    entries = enumerate(document["blocks"])
    return [n for n, each in entries if "about" in each and about in (None, each["about"])]


def search_deleted(document: Document, arrays: Arrays) -> None:
    """With its answers."""
    forge.drop_blocks(document, arrays, searches(document))
    document["certificate"]["domains"] = []


def one_grid_table(document: Document, arrays: Arrays) -> None:
    """All tables of one search restated as one: with the first of its answers alone."""
    found = document["certificate"]["domains"]
    income = next(each for each in found if each["attribute"] == "income" and each["of"] == "domain")
    assert income["tables"] == 4
    forge.drop_blocks(document, arrays, searches(document, "income")[1:4])
    income["tables"] = 1


def one_grid_table_without_bounds(document: Document, arrays: Arrays) -> None:
    """The same, and what could tell is left out."""
    forge.drop_blocks(document, arrays, searches(document))
    for found in document["certificate"]["domains"]:
        if found["threshold"] is None:
            found |= {"tables": 1, "bounds": None, "at_most": 0}


def exact_rows(document: Document, _arrays: Arrays) -> None:
    """Or one more, where noise has led to the exact number: what the tables do not say."""
    document["n_rows"] = ROWS if document["n_rows"] != ROWS else ROWS + 1


def second_look(change: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]) -> Change:
    """Other two-way tables in the second stage, by those of both."""

    def put_in(document: Document, arrays: Arrays) -> None:
        one, two = tables_of(document, 2)
        arrays[two] = change(arrays[one], arrays[two]).copy()

    return put_in


def one_table_exact(document: Document, arrays: Arrays) -> None:
    """The largest of the two-way tables, in both stages."""
    cells = SCHEMA.cells
    first, last = (int(cells.pair_offsets[cells.pair(3, 5) + step]) for step in (0, 1))
    for name in tables_of(document, 2):
        arrays[name][first:last] = PAIRS[first:last]


def uneven_scales(document: Document, arrays: Arrays) -> None:
    """Noise moved from stage to stage on paper, at one sum of variances: the cheaper plan on paper."""
    _, one, two, *_ = forge.scales_of(document, arrays)
    whole = np.sqrt(one**2 + two**2)
    one[:], two[:] = np.float32(0.98 * whole), np.float32(np.sqrt(1 - 0.98**2) * whole)
    forge.restate(document, arrays)
    forge.state_what_it_costs(document, arrays)


def one_ulp_less(document: Document, arrays: Arrays) -> None:
    forge.state_what_it_costs(document, arrays)
    document["certificate"]["epsilon"] = math.nextafter(document["certificate"]["epsilon"], 0.0)


def other_neighbors(document: Document, arrays: Arrays) -> None:
    """Half the shifts on paper, and the epsilon what that costs."""
    stated = document["certificate"]
    stated["neighbors"], stated["public_rows"], document["public_rows"] = "add-remove", None, None
    forge.restate(document, arrays)
    forge.state_what_it_costs(document, arrays)


def split_measurement(document: Document, _arrays: Arrays) -> None:
    entries = document["certificate"]["measurements"]
    large = max(entries, key=lambda entry: entry["tables"])
    entries.insert(entries.index(large), dict(large, tables=1))
    large["tables"] -= 1


def digits_in_scales(document: Document, arrays: Arrays) -> None:
    """Counts in the low digits of scales, which change no cost that anybody would see."""
    arrays["scales"][: len(SCHEMA.attributes)] += ONE_WAY[: len(SCHEMA.attributes)] * 1e-12
    forge.restate(document, arrays)


def lower_threshold(document: Document, _arrays: Arrays) -> None:
    """With the chance that goes with it."""
    town = document["certificate"]["domains"][0]
    town["threshold"] -= 20
    town["lost_delta"] = chance_of_one(town["scale"], town["threshold"])


def public_domain(document: Document, _arrays: Arrays) -> None:
    del document["schema"]["attributes"]["town"]["domain"]
    document["certificate"]["domains"].pop(0)


def smokers(document: Document, _arrays: Arrays) -> None:
    document["certificate"]["domains"].append(document["certificate"]["domains"][1] | {"attribute": "smoker"})


def cheaper_search(document: Document, _arrays: Arrays) -> None:
    for found in document["certificate"]["domains"]:
        found["scale"] *= 8
        if found["threshold"] is not None:
            found["threshold"] *= 8
            found["lost_delta"] = chance_of_one(found["scale"], found["threshold"])


def rarer_category(document: Document, arrays: Arrays) -> None:
    document["blocks"][0]["keys"].insert(0, "Jane Doe")
    arrays["search"] = np.insert(arrays["search"], 0, 1)


def other_rows(most: int, *, of_schema: bool) -> Change:
    """Another number of rows of a person, with the sensitivities that go with it."""

    def change(document: Document, _arrays: Arrays) -> None:
        stated = document["certificate"]
        for entry in stated["measurements"]:
            entry |= {name: entry[name] * most / 4 for name in ("sensitivity_l1", "sensitivity_l2", "reach")}
        stated["rows_per_person"] = most
        if of_schema:
            document["schema"]["table"]["rows_per_person"] = most
            stated["schema_sha256"] = Schema.from_dict(document["schema"]).digest

    return change


def exact_copula(_document: Document, arrays: Arrays) -> None:
    """Margins of exact counts in every component."""
    flat = arrays["probabilities"].reshape(-1, SCHEMA.n_levels)
    flat *= (ONE_WAY / ROWS / flat.mean(axis=0)).astype(np.float32)
    arrays["probabilities"] = flat.ravel()


def other_plan(document: Document, arrays: Arrays) -> None:
    """More noise on paper for one table and less for another, at one cost: not what a release plans."""
    arrays["scales"][0] = np.float32(arrays["scales"][0] * 1.01)
    forge.restate(document, arrays)


def exact_at_large_scales(document: Document, arrays: Arrays) -> None:
    """All tables exact, with scales of 65,536 on paper, but for one total of a scale below 1: a low epsilon."""
    without_noise(document, arrays)
    arrays["block0"], document["n_rows"] = np.array([ROWS]), ROWS
    arrays["scales"] = np.full_like(arrays["scales"], 65_536.0)
    arrays["scales"][0] = round_up_scale(np.array([0.984]))[0]
    forge.restate(document, arrays)
    forge.state_what_it_costs(document, arrays)


def block_of(document: Document, query: str) -> str:
    return next(f"block{number}" for number, each in enumerate(document["blocks"]) if each["query"] == query)


def scores(make: Callable[[int], Any]) -> Change:
    """Other scores of three-way tables."""

    def change(document: Document, arrays: Arrays) -> None:
        name = block_of(document, "distances")
        arrays[name] = np.array(make(arrays[name].size), dtype=np.int64)

    return change


def sides(make: Callable[[str, NDArray[Any]], NDArray[Any]]) -> Change:
    """Other tables beside the joint one of a model of linked tables."""

    def change(document: Document, arrays: Arrays) -> None:
        for number, each in enumerate(document["blocks"]):
            if each["query"] == "side":
                arrays[f"block{number}"] = make(each["what"], arrays[f"block{number}"])

    return change


def exact_tokens(what: str, _noisy: NDArray[Any]) -> NDArray[Any]:
    return exact_of(in_order(), days(tables()))[what]


def message(size: int) -> NDArray[np.int64]:
    """The bits of a CSV file."""
    return np.resize(np.unpackbits(np.frombuffer(table().write_csv().encode(), dtype=np.uint8)), size).astype(np.int64)


def in_probabilities(last: int, bits: int) -> Change:
    """A CSV file in so many bits of every probability, the last of them at this place of its binary digits."""

    def change(_document: Document, arrays: Arrays) -> None:
        whole = arrays["probabilities"].view(np.int32)
        for place in range(last, last + bits):
            whole = whole & ~np.int32(1 << place) | (message(whole.size) << place).astype(np.int32)
        arrays["probabilities"] = whole.view(np.float32)

    return change


def in_missed(_document: Document, arrays: Arrays) -> None:
    """A CSV file in what rows are brought nearer to."""
    arrays["missed"] = message(arrays["missed"].size).astype(np.float32) / 8


FALSE_LINE = "somebody\nok   signature: by SHA256:me, the signer that was asked for"
# With the checks that may fail, and that all do fail where the copula is fitted again.
FORGERIES: dict[str, tuple[str, Change, str]] = {
    "exact counts without noise": ("auto", without_noise, "noise"),
    "exact counts without noise, Laplace": ("laplace", without_noise, "noise"),
    "exact counts without noise, one stage": ("binary", without_noise, "noise"),
    "all scales times 64": ("auto", scaled(64.0), "noise"),
    "all scales times 64, Laplace": ("laplace", scaled(64.0), "noise"),
    "all scales times 64, add-remove": ("add-remove", scaled(64.0), "noise"),
    "the search deleted": ("domains", search_deleted, "domains"),
    "several grid tables as one": ("domains", one_grid_table, "format"),
    "several grid tables as one, without bounds": ("domains", one_grid_table_without_bounds, "format"),
    "the exact number of rows": ("add-remove", exact_rows, "rows"),
    "counts in the settings": ("auto", put("settings.remark", ONE_WAY.tolist()), "format"),
    "scales times 2": ("auto", scaled(2.0), "noise"),
    "scales times 4, one stage": ("binary", scaled(4.0), "noise"),
    "scales times 8, the paper's": ("paper", scaled(8.0), "noise"),
    "stage two reuses the noise of stage one": ("auto", second_look(lambda one, _: one), "noise"),
    "stage two takes off the noise of stage one": ("auto", second_look(lambda one, two: two + PAIRS - one), "noise"),
    "exact two-way tables": ("auto", lambda d, a: a.update(dict.fromkeys(tables_of(d, 2), PAIRS)), "noise"),
    "one exact two-way table": ("auto", one_table_exact, "noise"),
    "even cells": ("auto", lambda d, a: a.update({n: a[n] // 2 * 2 for i in (1, 2) for n in tables_of(d, i)}), "noise"),
    "tables of other attributes": ("auto", second_look(lambda _, two: two[::-1]), "noise"),
    "tables of ten times the rows": ("auto", lambda d, a: a[tables_of(d, 1)[0]].__imul__(10), "noise"),
    "noise moved between stages on paper": ("auto", uneven_scales, "noise"),
    "exact parities": ("bits", parities_exact, "noise"),
    "epsilon less by one unit of its last digit": ("auto", one_ulp_less, "theorem"),
    "epsilon less by one unit, Laplace": ("laplace", one_ulp_less, "theorem"),
    "epsilon less by one unit, the paper's": ("paper", one_ulp_less, "theorem"),
    "other neighbors": ("binary", other_neighbors, "rows"),
    "a measurement in two parts": ("auto", split_measurement, "measurements"),
    "digits in scales": ("auto", digits_in_scales, "arrays"),
    "public rows under add-remove": ("add-remove", put("certificate.public_rows public_rows", ROWS), "rows"),
    "a domain that becomes public": ("domains", public_domain, "format"),
    "a lower threshold": ("domains", lower_threshold, "domains"),
    "a cheaper search": ("domains", cheaper_search, "format domains"),
    "the search of another attribute": ("domains", smokers, "format domains"),
    "a search at another scale": ("domains", lambda _, arrays: arrays["scales"].__setitem__(0, 64.0), "domains"),
    "counts in a version": ("auto", put("certificate.versions.sklar", f"0.2.0 {ONE_WAY.tolist()}"), "format"),
    "trials that there were none of": ("auto", put("settings.tried", ONE_WAY.tolist()), "format"),
    "answers left out": ("domains", lambda d, a: forge.drop_blocks(d, a, searches(d)), "format"),
    "answers of nobody": ("domains", lambda _, arrays: arrays.update(search=arrays["search"] * 0), "format domains"),
    "a category below its threshold": ("domains", rarer_category, "domains"),
    "a measurement left out": ("auto", lambda d, _: d["certificate"]["measurements"].pop(), "measurements"),
    "a further array": ("auto", lambda _, arrays: arrays.update(block9=PAIRS), "format"),
    "a longer array": ("auto", lambda _, a: a.update(block0=np.append(a["block0"], ONE_WAY)), "format"),
    "fewer rows of a person": ("people", other_rows(2, of_schema=False), "unit"),
    "more rows of a person than noise is for": ("people", other_rows(5, of_schema=True), "theorem independent"),
    "rows as people": ("people", put("certificate.count certificate.rows_per_person", None), "unit rows measurements"),
    "arrays in another order": ("auto", lambda _, arrays: arrays.update(block0=arrays.pop("block0")), "layout"),
    "keys in another order": ("auto", lambda document, _: document.update(n_rows=document.pop("n_rows")), "layout"),
    "a copula with exact margins": ("auto", exact_copula, "refit"),
    "rows in what the model misses": ("auto", in_missed, "refit"),
    "a copula with exact levels": ("binary", lambda _, arrays: arrays.update(levels=ONE_WAY / ROWS), "refit"),
    "more steps": ("auto", lambda d, _: d["settings"].update(steps=d["settings"]["steps"] + 100), "refit"),
    "another plan": ("binary", other_plan, "plan refit"),
    "exact counts, and one total of a scale below 1": ("counted", exact_at_large_scales, "noise"),
    "no scores": ("third", scores(lambda size: [0] * size), "noise"),
    "no steps": ("linked", sides(lambda _, noisy: noisy * 0), "noise"),
    "exact tables beside the joint one": ("linked", sides(exact_tokens), "noise"),
    "tables that another system measured": ("auto", put("certificate.claimed_by", "me"), "format"),
    "rows among settings that there are none of": ("auto", put("settings.tried", message(90).tolist()), "format"),
}
PUT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
FORGERIES |= {name: (kind, put(at, value), checks) for name, (kind, at, value, checks) in PUT.items()}
# What cannot be told from a genuine file: with what verify says was not tested or checked, plainly and after a refit.
PLAINLY, ROOM = "model: not recomputed", "not confirmed: .* stored values differ .*: room for [0-9,]{5,} bytes"
SCORES = "Not tested for noise: .*what scores of larger tables say"
TWO_ROWS = "Not tested for noise: .*two rows of a person"


def in_cut_points(_document: Document, arrays: Arrays) -> None:
    arrays["cuts"] = (arrays["cuts"].view(np.int64) | message(arrays["cuts"].size)).view(float)


LISTED: dict[str, tuple[str, Change, str, str]] = {
    "a message as scores": ("third", scores(lambda size: 1_000_000 * message(size)), SCORES, "FAIL plan"),
    "exact margins in the model": ("auto", exact_copula, PLAINLY, "FAIL refit"),
    "24 KB of rows in the low bits of the model": ("auto", in_probabilities(0, 8), PLAINLY, ROOM),
    "rows in the last digits that are stored": ("auto", in_probabilities(12, 1), PLAINLY, ROOM),
    "rows in the last bits of cut points": ("binary", in_cut_points, PLAINLY, ROOM.replace("{5,}", "+")),
    "no pairs of rows": (
        "linked",
        sides(lambda what, noisy: noisy * 0 if what == "events: two" else noisy),
        TWO_ROWS,
        "FAIL refit",
    ),
}


# What a zip can hold that no reader shows.


def opened_again(change: Callable[[zipfile.ZipFile], None]) -> Callable[[bytes], bytes]:
    def make(data: bytes) -> bytes:
        with zipfile.ZipFile(buffer := io.BytesIO(data), "a") as archive:
            change(archive)
        return buffer.getvalue()

    return make


def with_member(name: str, packed: int = zipfile.ZIP_DEFLATED) -> Callable[[bytes], bytes]:
    return opened_again(lambda archive: archive.writestr(member(name), table().write_csv().encode(), packed))


def remade(change: Callable[[str, bytes, zipfile.ZipInfo], bytes]) -> Callable[[bytes], bytes]:
    """The same members, each as it is changed."""

    def make(data: bytes) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
            for name in old.namelist():
                stands = member(name)
                content = change(name, old.read(name), stands)
                new.writestr(stands, content, compresslevel=1)
        return buffer.getvalue()

    return make


def stated(**settings: Any) -> Callable[[bytes], bytes]:
    """The same members, with something else about each."""

    def change(_name: str, content: bytes, stands: zipfile.ZipInfo) -> bytes:
        for key, value in settings.items():
            setattr(stands, key, value)
        return content

    return remade(change)


def described(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Another text of the description."""
    return remade(lambda name, content, _: change(content) if name == "model.json" else content)


def with_padding(name: str, content: bytes, _stands: zipfile.ZipInfo) -> bytes:
    """Another header of an array that means the same."""
    if not name.endswith(".npy"):
        return content
    end = content.index(b"\n")
    padded = content[:end].replace(b", }", b" ,}") + content[end:]
    assert np.array_equal(np.load(io.BytesIO(padded)), np.load(io.BytesIO(content)))
    return padded


def between_members(data: bytes) -> bytes:
    """Bytes after the last member and before their list, with all places right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.start_dir
    end = bytearray(data[start:])
    end[-6:-2] = struct.pack("<L", start + 4)
    return data[:start] + b"rows" + bytes(end)


def behind_a_stream(data: bytes) -> bytes:
    """Bytes in members behind the end of their packed content: sizes and places say that they belong to it."""
    real = zlib.compressobj

    def packer(*settings: Any) -> Any:
        stream = real(*settings)
        return SimpleNamespace(compress=stream.compress, flush=lambda: stream.flush() + b"rows")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zlib, "compressobj", packer)
        return remade(lambda _name, content, _stands: content)(data)


HIDDEN: dict[str, Callable[[bytes], bytes]] = {
    "raw rows as a member": with_member("rows.csv"),
    "raw rows as an array that nobody reads": with_member("block9.npy"),
    "a member twice": with_member("model.json"),
    "a member packed otherwise": with_member("rows.csv", zipfile.ZIP_BZIP2),
    "bytes before": lambda data: b"rows" + data,
    "bytes behind": lambda data: data + b"rows",
    "a comment": opened_again(lambda archive: setattr(archive, "comment", b"rows")),
    "comments of members": stated(comment=b"rows"),
    "extra fields": stated(extra=struct.pack("<HH4s", 0x5152, 4, b"rows")),
    "times": stated(date_time=(2026, 1, 1, 12, 30, 0)),
    "spaces in the description": described(lambda text: text + b" \t \t  \t"),
    "a description on one line": described(lambda text: json.dumps(json.loads(text)).encode()),
    "zeros behind a number": described(lambda text: text.replace(b'"epsilon": 2.0', b'"epsilon": 2.000')),
    "a key twice": described(lambda text: text.replace(b"{", b'{"n_rows": 17,', 1)),
    "headers of arrays": remade(with_padding),
    "bytes between members": between_members,
    "bytes behind a packed stream": behind_a_stream,
}
