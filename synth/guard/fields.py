"""Reading a certificate: plain JSON of which nothing is taken for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from synth.types import JsonValue


def section(node: Mapping[str, JsonValue], key: str) -> Mapping[str, JsonValue]:
    """The mapping under a key; empty where there is none."""
    value = node.get(key)
    return value if isinstance(value, Mapping) else {}


def entries(node: Mapping[str, JsonValue], key: str) -> tuple[Mapping[str, JsonValue], ...]:
    """The mappings in the list under a key."""
    value = node.get(key)
    found = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return tuple(entry for entry in found if isinstance(entry, Mapping))


def texts(node: Mapping[str, JsonValue], key: str) -> tuple[str, ...]:
    """The list under a key as texts."""
    value = node.get(key)
    return tuple(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else ()
