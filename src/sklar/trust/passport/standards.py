"""Descriptions of a folder in the standards' own terms: Frictionless, Croissant 1.1, DCAT, and the OpenDP registry.

What the publisher does not state is left out where the standard allows that, and marked where it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import PurePath
from typing import Any

from sklar.trust.passport.facts import DATA, FILES, REPORT, ROWS_CSV, ROWS_PARQUET, WEB, Facts, RowColumn

_KEYWORDS = ("synthetic data", "differential privacy")
# In the registry's entry: what only people know.
MARK = "TO BE FILLED IN"
REGISTRY_HEAD = f"""\
# A draft for the registry of differential privacy deployments (registry.opendp.org), made from the model file.
# Fill in what is marked "{MARK}", set the status and the authors of the entry, and send it in.
"""


def _stated(**values: Any) -> dict[str, Any]:
    """Those that somebody states."""
    return {name: value for name, value in values.items() if value is not None}


def data_package(facts: Facts) -> dict[str, Any]:
    """A Frictionless Data Package: the folder's files, and the fields of the synthetic rows. It states no time."""
    publication, address = facts.publication, facts.publication.license_address
    named = None if publication.license == address else publication.license
    resources = [_resource(facts, name) for name in DATA]
    resources[0] |= {
        "profile": "tabular-data-resource",
        "type": "table",
        "dialect": {"delimiter": ",", "lineTerminator": "\n", "quoteChar": '"', "doubleQuote": True},
        "schema": {"fields": [_package_field(column) for column in facts.columns], "missingValues": [""]},
    }
    return {
        "profile": "data-package",
        "name": facts.slug,
        "title": facts.title,
        "description": facts.description,
        "version": facts.model.certificate.schema_sha256[:16],
        "keywords": [*_KEYWORDS],
        **_stated(
            homepage=publication.url,
            created=publication.date and f"{publication.date}T00:00:00Z",
            licenses=address and [{**_stated(name=named), "path": address}],
            contributors=publication.publisher and [{"title": publication.publisher, "role": "publisher"}],
        ),
        "resources": resources,
    }


def _resource(facts: Facts, name: str) -> dict[str, Any]:
    path = PurePath(name)
    return {
        # Only the rows are described field by field.
        "type": "file",
        "name": path.stem.replace("_", "-") + ("" if name == ROWS_CSV else f"-{path.suffix[1:]}"),
        "title": FILES[name],
        "path": name,
        "format": path.suffix[1:],
        "mediatype": DATA[name],
        "encoding": "utf-8",
        "bytes": facts.contents[name].size,
        "hash": f"sha256:{facts.contents[name].sha256}",
    }


def _package_field(column: RowColumn) -> dict[str, Any]:
    constraints = _stated(
        required=True if column.missing is None else None,
        enum=list(column.values) or None,
        minimum=column.least,
        maximum=column.largest,
    )
    return {
        "name": column.name,
        # Durations are written as 1:30:00, which is not how the standard writes them.
        "type": "string" if column.family == "duration" else column.family,
        "title": column.title,
        **_stated(
            description=column.description or None,
            unit=column.unit,
            # Seconds may have fractions, and a time zone may follow.
            format="any" if column.family in ("datetime", "time") else None,
            missingValues=["", column.missing] if column.missing else None,
            categories=[{"value": value, "label": label} for value, label in column.labels] or None,
            constraints=constraints or None,
        ),
    }


# Names that Croissant puts into its own namespace.
_CROISSANT_NAMES = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject",
    "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator",
    "source", "subField", "transform",
)  # fmt: skip
_CROISSANT_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{name: f"cr:{name}" for name in _CROISSANT_NAMES},
}
_CROISSANT_TYPES = {
    "string": "sc:Text", "integer": "sc:Integer", "number": "sc:Float", "boolean": "sc:Boolean", "date": "sc:Date",
    "datetime": "sc:DateTime", "time": "sc:Time",
}  # fmt: skip


def croissant(facts: Facts) -> dict[str, Any]:
    """A Croissant description: files and fields of the synthetic rows, for machine learning tools."""
    publication = facts.publication
    agent = publication.publisher and {"@type": "sc:Organization", "name": publication.publisher}
    # Croissant has no type for durations: they are in the files alone.
    typed = [column for column in facts.columns if column.family in _CROISSANT_TYPES]
    ids = ids_of(column.name for column in typed)
    return {
        "@context": _CROISSANT_CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": facts.slug,
        "description": facts.description,
        "alternateName": facts.title,
        "citeAs": facts.citation,
        "version": "1.0.0",
        "isLiveDataset": False,
        "keywords": [*_KEYWORDS],
        "isAccessibleForFree": True,
        **_stated(license=publication.license_address, url=publication.url, datePublished=publication.date),
        **_stated(creator=agent, publisher=agent),
        "distribution": [_file_object(facts, name) for name in DATA],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "rows",
                "name": "rows",
                "description": f"{facts.rows:,} synthetic rows, drawn with seed {facts.seed}.",
                "field": [_croissant_field(column, named) for column, named in zip(typed, ids, strict=True)],
            }
        ],
    }


def _file_object(facts: Facts, name: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": FILES[name],
        "contentUrl": facts.address(name),
        "contentSize": f"{facts.contents[name].size} B",
        # Croissant's tools have a name of their own for Parquet.
        "encodingFormat": "application/x-parquet" if name.endswith(".parquet") else DATA[name],
        "sha256": facts.contents[name].sha256,
    }


def ids_of(names: Iterable[str]) -> list[str]:
    """A name for each column that is part of an address: letters, digits, and no two alike."""
    ids: dict[str, None] = {}
    for number, name in enumerate(names, start=1):
        plain = re.sub("[^A-Za-z0-9._-]+", "_", name)
        while plain in ids:
            plain += f"_{number}"
        ids[plain] = None
    return list(ids)


def _croissant_field(column: RowColumn, named: str) -> dict[str, Any]:
    described = f"{column.title}. {column.description}".strip() if column.description else column.title
    if column.labels:
        described += " " + "; ".join(f"{value}: {label}" for value, label in column.labels) + "."
    return {
        "@type": "cr:Field",
        "@id": f"rows/{named}",
        "name": column.name,
        "description": described,
        "dataType": _CROISSANT_TYPES[column.family],
        # In the Parquet file what is missing is null; in a CSV file it may be any text, which Croissant cannot state.
        "source": {"fileObject": {"@id": ROWS_PARQUET}, "extract": {"column": column.name}},
    }


_DCAT_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_MAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+")


def dcat(facts: Facts) -> dict[str, Any]:
    """A DCAT description (JSON-LD) for data catalogs: one dataset and its distributions."""
    publication, address = facts.publication, facts.publication.license_address
    license_ = {} if address is None else {"dct:license": {"@id": address}}
    optional = {
        "dct:publisher": publication.publisher and {"@type": "foaf:Agent", "foaf:name": publication.publisher},
        "dcat:contactPoint": publication.contact and _contact(publication.contact, publication.publisher),
        "dct:issued": publication.date and {"@value": publication.date, "@type": "xsd:date"},
        "dcat:landingPage": publication.url and {"@id": publication.url, "@type": "foaf:Document"},
    }
    return {
        "@context": _DCAT_CONTEXT,
        "@id": publication.url or "./",
        "@type": "dcat:Dataset",
        "dct:identifier": facts.model.certificate.schema_sha256,
        "dct:title": _english(facts.title),
        "dct:description": _english(facts.description),
        "dcat:keyword": [_english(word) for word in _KEYWORDS],
        "dct:bibliographicCitation": facts.citation,
        "dct:accessRights": {"@id": "http://publications.europa.eu/resource/authority/access-right/PUBLIC"},
        **license_,
        **_stated(**optional),
        "foaf:page": {"@id": facts.address(REPORT), "@type": "foaf:Document"},
        "dcat:distribution": [_distribution(facts, name) | license_ for name in DATA],
    }


def _english(text: str) -> dict[str, str]:
    return {"@value": text, "@language": "en"}


def _contact(contact: str, publisher: str | None) -> dict[str, Any]:
    reach: dict[str, Any] = {}
    if WEB.fullmatch(contact):
        reach = {"vcard:hasURL": {"@id": contact}}
    elif _MAIL.fullmatch(contact):
        reach = {"vcard:hasEmail": {"@id": f"mailto:{contact}"}}
    return {"@type": "vcard:Kind", "vcard:fn": publisher or contact, **reach}


def _distribution(facts: Facts, name: str) -> dict[str, Any]:
    address = {"@id": facts.address(name)}
    return {
        "@type": "dcat:Distribution",
        "dct:title": _english(name),
        "dct:description": _english(FILES[name]),
        "dcat:accessURL": address,
        "dcat:downloadURL": address,
        "dcat:mediaType": {"@id": f"https://www.iana.org/assignments/media-types/{DATA[name]}"},
        "dcat:byteSize": {"@value": str(facts.contents[name].size), "@type": "xsd:nonNegativeInteger"},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
            "spdx:checksumValue": {"@value": facts.contents[name].sha256, "@type": "xsd:hexBinary"},
        },
    }


def registry_entry(facts: Facts) -> dict[str, Any]:
    """A draft for the OpenDP deployments registry. Texts that begin with the mark are the publisher's to write.

    The registry's schema (github.com/opendp/deployments-registry-data) changes; this is its layout of September 2026.
    """
    certificate, publication = facts.model.certificate, facts.publication
    replaced, people = certificate.neighbors == "replace-one", certificate.count is not None
    one_way, two_way = facts.errors
    measured = []
    for (stage, what), group in groupby(certificate.measurements, key=lambda each: (each.stage, each.what)):
        tables, scales = zip(*((each.tables, each.scale) for each in group), strict=True)
        between = " to ".join(dict.fromkeys(f"{scale:.4g}" for scale in (min(scales), max(scales))))
        measured.append(f"stage {stage}: {sum(tables):,} {what} at scale {between}")
    searched = ", ".join([each.attribute for each in certificate.domains][:20]) or "none"
    public = ["the schema (names of attributes, categories and bins)", "the settings of the release"]
    if certificate.public_rows is not None:
        public.append(f"the number of {'people' if people else 'rows'}")
    if certificate.read_from_rows:
        public.append(f"categories and bins read from the records: {', '.join(certificate.read_from_rows[:20])}")
    if certificate.unread:
        public.append(f"entries drafted from the records and accepted unread: {', '.join(certificate.unread[:20])}")
    kind, sector = certificate.mechanism, f"{MARK}: Government, Industry or Nonprofit"
    mechanism = (
        f"Exact discrete {kind} noise on every cell of one-way and two-way tables of counts, from the operating "
        f"system's entropy ({facts.sklar}). No floating-point noise."
    )
    if certificate.claimed_by is not None:
        mechanism = f"Claimed by {certificate.claimed_by}, not checked: {kind} noise on tables of counts."
    return {
        "url_slug": facts.slug,
        "deployment": {
            "basic": {
                "name": facts.title,
                "data_curators": [{"data_curator_name": publication.publisher or MARK, "data_curator_type": sector}],
                "description": facts.description,
                "intended_use": MARK,
                "data_product_type": "Synthetic data",
                "data_product_region": MARK,
                "publication_date": publication.date or MARK,
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if certificate.delta else "Pure DP",
                "data_domain": f"Tables with the {facts.model.schema.n_attributes} attributes of the published schema "
                f"(SHA-256 {certificate.schema_sha256}), whose values all have a public domain.",
                "unprotected_quantities": f"Treated as public: {', '.join(public)}.",
            },
            "privacy_loss": {
                "privacy_unit": "Person" if people else "Row",
                "privacy_unit_details": "Adjacent tables "
                + ("have the same number of units, and differ in" if replaced else "differ by the presence of")
                + f" one {certificate.unit} ({certificate.neighbors}).",
                "number_of_privacy_units": facts.model.n_rows,
                "privacy_parameters": {"epsilon": certificate.epsilon, **_stated(delta=certificate.delta or None)},
                "privacy_parameters_details": f"Fixed before anything was measured. {'; '.join(measured)}. "
                f"Searches for domains: {searched}.",
            },
            "deployment_model": {
                "model_name": "Central",
                "trust_assumptions": "The custodian holds the records and runs the mechanism; whoever sees the release "
                "is taken to be an adversary with any other knowledge.",
                "actors": "The custodian, who sees the records. The public, who see noisy tables, the model fitted to "
                "them and synthetic rows.",
                "release_type": "One release",
                "release_type_details": f"{MARK}: other releases of the same table, past or planned, add to the cost.",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "Numbers and dates are grouped into bins of the schema. All "
                "choices that depend on the records are made from noisy tables, within the budget.",
                "mechanisms": mechanism,
                "composition": f"{certificate.composition} composition of all tables of all stages.",
                "post_processing": "A model is fitted to the noisy tables; synthetic rows are drawn from it with a "
                "public seed. Noisy counts may be negative and are published as they are.",
                "justification": f"{MARK}: why this epsilon, this unit and these neighbors.",
                "utility": f"Standard error of a one-way count: {one_way:.1f} rows"
                + ("." if two_way is None else f"; of a two-way count: {two_way:.1f}."),
                "additional_information": publication.url or f"{MARK}: where the release can be found.",
            },
            "administrative": {"status": "Draft", "registry_authors": [publication.publisher or MARK], "tier": 3},
        },
    }
