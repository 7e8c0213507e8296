"""Tests of what is publicly known."""

from sklar.public.axis import AXES
from sklar.public.schema import Attribute, Schema


def one(body: str, name: str = "age") -> Attribute:
    """The single attribute that this TOML describes; a first line that is a type alone stands for that key."""
    kind, _, rest = body.partition("\n")
    body = f'type = "{kind}"\n{rest}' if kind in AXES else body
    return Schema.from_toml(f"[attributes.{name}]\n{body}").attributes[0]
