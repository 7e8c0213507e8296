"""A draft for the OpenDP deployments registry: what the model states is filled in, what only people know is marked.

The registry's schema (github.com/opendp/deployments-registry-data) changes; this follows its layout of September 2026.
"""

from __future__ import annotations

from typing import Any

from sklar.trust.passport.facts import Facts
from sklar.trust.passport.markdown import yaml

MARK = "TO BE FILLED IN"
_HEAD = f"""\
# A draft for the registry of differential privacy deployments (registry.opendp.org), made from the model file.
# Fill in what is marked "{MARK}", set the status and the authors of the entry, and send it in.
"""


def registry_entry(facts: Facts) -> str:
    """The entry as YAML."""
    return _HEAD + yaml(entry(facts))


def entry(facts: Facts) -> dict[str, Any]:
    """The entry. Texts that begin with the mark are the publisher's to write."""
    certificate, publication = facts.certificate, facts.publication
    replaced, people = certificate.neighbors == "replace-one", certificate.count is not None
    one_way, two_way = facts.errors
    found = [each.attribute for each in certificate.domains]
    public = ["the schema (names of attributes, categories and bins)", "the settings of the release"]
    if certificate.public_rows is not None:
        public.append(f"the number of {'people' if people else 'rows'}")
    if certificate.read_from_rows:
        public.append(f"categories and bins read from the records: {', '.join(certificate.read_from_rows[:20])}")
    parameters: dict[str, Any] = {"epsilon": certificate.epsilon}
    if certificate.delta:
        parameters["delta"] = certificate.delta
    return {
        "url_slug": facts.slug,
        "deployment": {
            "basic": {
                "name": facts.title,
                "data_curators": [
                    {
                        "data_curator_name": publication.publisher or MARK,
                        "data_curator_type": f"{MARK}: Government, Industry or Nonprofit",
                    }
                ],
                "description": facts.description,
                "intended_use": MARK,
                "data_product_type": "Synthetic data",
                "data_product_region": MARK,
                "publication_date": publication.date or MARK,
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if certificate.delta else "Pure DP",
                "data_domain": f"Tables with the {facts.schema.n_attributes} attributes of the published schema "
                f"(SHA-256 {certificate.schema_sha256}), whose values all have a public domain.",
                "unprotected_quantities": f"Treated as public: {', '.join(public)}.",
            },
            "privacy_loss": {
                "privacy_unit": "Person" if people else "Row",
                "privacy_unit_details": "Adjacent tables "
                + ("have the same number of units, and differ in" if replaced else "differ by the presence of")
                + f" one {certificate.unit} ({certificate.neighbors}).",
                "number_of_privacy_units": facts.model.n_rows,
                "privacy_parameters": parameters,
                "privacy_parameters_details": f"Fixed before anything was measured. {'; '.join(facts.measured)}. "
                "Searches for domains: "
                f"{', '.join(found[:20]) or 'none'}.",
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
                "mechanisms": _mechanism(facts),
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


def _mechanism(facts: Facts) -> str:
    certificate = facts.certificate
    if certificate.claimed_by is not None:
        return f"Claimed by {certificate.claimed_by}, not checked: {certificate.mechanism} noise on tables of counts."
    return (
        f"Exact discrete {certificate.mechanism} noise on every cell of one-way and two-way tables of counts, from the "
        f"operating system's entropy ({facts.sklar}). No floating-point noise."
    )
