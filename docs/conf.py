"""How the site is built: `make docs`. Nothing is fetched: no web fonts, no scripts from elsewhere."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import version as installed
from inspect import isclass, signature
from pathlib import Path
from typing import Any

from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

import sklar

project = "Sklar"
author = "The Sklar authors"
version = release = installed("sklar")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
myst_heading_anchors = 4
# Code in docstrings stands in single backticks, as in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"Sklar {version}"
html_static_path = ["_static"]
html_css_files = ["sklar.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False


ENTRIES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("api.toml").read_text(encoding="utf-8"))


def reference(_app: Sphinx, name: str, source: list[str]) -> None:
    """Append every public name and every result type to the page `api`, so that none can be left out."""
    if name != "api":
        return
    names = {public: getattr(sklar, public) for public in sklar.__all__}
    errors = [public for public, found in names.items() if isclass(found) and issubclass(found, Exception)]
    classes = [public for public, found in names.items() if isclass(found) and public not in errors]
    functions = [public for public in names if public not in errors and public not in classes]
    results = [entry["of"] for entry in ENTRIES["classes"].values() if "of" in entry]
    parts = [
        ("Functions", "autofunction", "", [f"sklar.{public}" for public in functions]),
        ("Classes", "autoclass", "   :members:\n", [f"sklar.{public}" for public in classes]),
        ("Results", "autoclass", "   :members:\n   :inherited-members:\n", results),
        ("Errors", "autoexception", "", [f"sklar.{public}" for public in errors]),
    ]
    source[0] += f"\nThe examples stand in one another's company, after this:\n\n```python\n{ENTRIES['setup']}```\n"
    for title, directive, options, listed in parts:
        directives = "\n".join(f".. {directive}:: {public}\n{options}" for public in listed)
        source[0] += f"\n## {title}\n\n```{{eval-rst}}\n{directives}\n```\n"


def described(_app: Sphinx, kind: str, name: str, found: Any, _options: Any, lines: list[str]) -> None:
    """Append to docstrings the arguments of functions, the fields of results, what is returned, and an example."""
    entry = ENTRIES["functions" if kind == "function" else "classes"].get(name.rpartition(".")[2], {})
    if kind == "class":
        lines += ["", *(f":ivar {each}: {told}" for each, told in entry.get("fields", {}).items())]
    elif kind in ("function", "method"):
        told = ENTRIES["arguments"] | entry.get("arguments", {})
        lines += ["", *(f":param {each}: {told[each]}" for each in signature(found).parameters if each in told)]
    if kind in ("function", "class") and entry:
        lines += [f":returns: {entry['returns']}"] if "returns" in entry else []
        example = [f"    {line}" for line in entry["example"].strip().splitlines()]
        lines += ["", ".. code-block:: python", "", *example, ""]


class NotebookParser(MystParser):
    """Reads a notebook as Markdown: its text, its code, and the outputs that are stored in it."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: Any) -> None:
        """Parse the notebook's JSON as the Markdown that it amounts to."""
        super().parse(markdown(json.loads(inputstring)), document)


def markdown(notebook: dict[str, Any]) -> str:
    """The notebook as one Markdown text; pictures become data URIs."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![](data:image/png;base64,{''.join(data['image/png'].split())})")
            else:
                printed = "".join(output["text"] if output["output_type"] == "stream" else data["text/plain"])
                parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def setup(app: Sphinx) -> None:
    """Register the generators of this file."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    app.connect("source-read", reference)
    app.connect("autodoc-process-docstring", described)
