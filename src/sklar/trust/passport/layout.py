"""Which files a published folder has, and what each is."""

from __future__ import annotations

# The files of the folder, each with what it is.
README = "README.md"
REPORT = "report.html"
ROWS_PARQUET = "synthetic.parquet"
ROWS_CSV = "synthetic.csv"
MODEL = "model.sklar"
TABLES = "noisy_tables.parquet"
SCHEMA = "schema.toml"
CERTIFICATE = "certificate.json"
FRICTIONLESS = "datapackage.json"
CROISSANT = "croissant.json"
DCAT = "dcat.jsonld"
REGISTRY = "opendp_registry.yaml"
CHECKLIST = "nist_sp_800_226.md"
PASSPORT = "passport.json"
SUMS = "SHA256SUMS"
SIGNED = (MODEL, SUMS)
FILES = {
    README: "what this is, how to cite it and how to compute with it (also a Hugging Face dataset card)",
    REPORT: "the report for readers, with charts and error bars",
    ROWS_PARQUET: "synthetic rows, with their types",
    ROWS_CSV: "the same synthetic rows as text",
    MODEL: "the model: noisy tables, what was fitted to them, and the privacy certificate",
    TABLES: "the noisy counts, one row per cell, each with the scale of its noise",
    SCHEMA: "what was publicly known of the table: attributes, categories, bins, rules",
    CERTIFICATE: "what was spent on what, enough to recompute the privacy claim",
    FRICTIONLESS: "description for Frictionless tools (Data Package)",
    CROISSANT: "description for machine learning tools (Croissant 1.1)",
    DCAT: "description for data catalogs (DCAT, JSON-LD)",
    REGISTRY: "draft of an entry for the OpenDP deployments registry",
    CHECKLIST: "checklist after NIST SP 800-226: who decided what",
    PASSPORT: "how this folder was made: sklar verify makes it again from this and the model",
    SUMS: "SHA-256 of every file",
}
MEDIA = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".sklar": "application/zip",
    ".html": "text/html",
    ".toml": "application/toml",
    ".json": "application/json",
    ".md": "text/markdown",
}
