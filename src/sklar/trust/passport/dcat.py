"""A DCAT description (dcat.jsonld): one dataset and its distributions, as data catalogs read them (JSON-LD)."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

from sklar.trust.passport.facts import Facts
from sklar.trust.passport.layout import FILES, MEDIA, MODEL, REPORT, ROWS_CSV, ROWS_PARQUET, TABLES
from sklar.trust.passport.publication import WEB

_IANA = "https://www.iana.org/assignments/media-types/"
_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_MAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+")


def dcat(facts: Facts) -> dict[str, Any]:
    """The dataset, with what the publisher stated and no more."""
    publication = facts.publication
    license_ = {} if publication.license_address is None else {"dct:license": {"@id": publication.license_address}}
    document: dict[str, Any] = {
        "@context": _CONTEXT,
        "@id": publication.url or "./",
        "@type": "dcat:Dataset",
        "dct:identifier": facts.certificate.schema_sha256,
        "dct:title": {"@value": facts.title, "@language": "en"},
        "dct:description": {"@value": facts.description, "@language": "en"},
        "dcat:keyword": [
            {"@value": "synthetic data", "@language": "en"},
            {"@value": "differential privacy", "@language": "en"},
        ],
        "dct:bibliographicCitation": facts.citation,
        "dct:accessRights": {"@id": "http://publications.europa.eu/resource/authority/access-right/PUBLIC"},
        **license_,
    }
    if publication.publisher is not None:
        document["dct:publisher"] = {"@type": "foaf:Agent", "foaf:name": publication.publisher}
    if publication.contact is not None:
        document["dcat:contactPoint"] = {
            "@type": "vcard:Kind",
            "vcard:fn": publication.publisher or publication.contact,
            **_reach(publication.contact),
        }
    if publication.date is not None:
        document["dct:issued"] = {"@value": publication.date, "@type": "xsd:date"}
    if publication.url is not None:
        document["dcat:landingPage"] = {"@id": publication.url, "@type": "foaf:Document"}
    document["foaf:page"] = {"@id": facts.address(REPORT), "@type": "foaf:Document"}
    document["dcat:distribution"] = [
        _distribution(facts, name) | license_ for name in (ROWS_CSV, ROWS_PARQUET, TABLES, MODEL)
    ]
    return document


def _reach(contact: str) -> dict[str, Any]:
    if WEB.fullmatch(contact):
        return {"vcard:hasURL": {"@id": contact}}
    return {"vcard:hasEmail": {"@id": f"mailto:{contact}"}} if _MAIL.fullmatch(contact) else {}


def _distribution(facts: Facts, name: str) -> dict[str, Any]:
    content, address = facts.contents[name], {"@id": facts.address(name)}
    return {
        "@type": "dcat:Distribution",
        "dct:title": {"@value": name, "@language": "en"},
        "dct:description": {"@value": FILES[name], "@language": "en"},
        "dcat:accessURL": address,
        "dcat:downloadURL": address,
        "dcat:mediaType": {"@id": f"{_IANA}{MEDIA[PurePath(name).suffix]}"},
        "dcat:byteSize": {"@value": str(content.size), "@type": "xsd:nonNegativeInteger"},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
            "spdx:checksumValue": {"@value": content.sha256, "@type": "xsd:hexBinary"},
        },
    }
