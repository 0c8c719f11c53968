"""profile.json: a profile as plain values, and back. Gaps are written for readers and not read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from synth.config import first_mistake
from synth.diagnosis.statistics import normalised
from synth.errors import ResultsError
from synth.findings import CategoryProfile, Profile
from synth.types import JsonValue

_PROFILE = TypeAdapter(Profile)


def profile_to_json(profile: Profile) -> dict[str, JsonValue]:
    """The content of profile.json."""
    return {
        "benchmark": profile.benchmark,
        "model": profile.model,
        "macro": profile.macro,
        "micro": profile.micro,
        "chance": profile.chance,
        "human": profile.human,
        "categories": {category.name: _to_json(category) for category in profile.categories},
        "skills": {skill.name: _to_json(skill) for skill in profile.skills},
        "warnings": list(profile.warnings),
        "key_hash": profile.key_hash,
        "prompt_hash": profile.prompt_hash,
        "routing": list(profile.routing),
        "fold": profile.fold,
    }


def _to_json(it: CategoryProfile) -> dict[str, JsonValue]:
    row = {f.name: _plain(getattr(it, f.name)) for f in fields(it) if f.name != "name"}
    gaps: dict[str, JsonValue] = {
        "above_chance": it.accuracy - it.chance,
        "above_chance_normalised": normalised(it.accuracy, it.chance),
        "to_human": None if it.human is None else it.human - it.accuracy,
        "to_human_normalised": None if it.human is None else 1 - normalised(it.accuracy, it.chance, it.human),
    }
    return row | (gaps if it.n else dict.fromkeys(gaps))


def _plain(value: object) -> JsonValue:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value  # type: ignore[return-value]  # numbers, booleans, None


def profile_from_json(data: Mapping[str, JsonValue]) -> Profile:
    """A profile from the content of profile.json. Raises ResultsError that names the first wrong key."""
    tables = {}
    for key in ("categories", "skills"):
        table = data.get(key)
        if not isinstance(table, Mapping) or not all(isinstance(row, Mapping) for row in table.values()):
            raise ResultsError(f"expected an object of objects under {key!r}", where="profile.json")
        tables[key] = [{"name": name, **row} for name, row in table.items() if isinstance(row, Mapping)]
    try:
        return _PROFILE.validate_python({**data, **tables})
    except ValidationError as error:
        raise ResultsError(first_mistake(error), where="profile.json", fix="run `s2p diagnose` again") from None


def load_profile(path: Path) -> Profile:
    """Read a profile.json. Raises ResultsError."""
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ResultsError(f"cannot be read: {error}", where=str(path), fix="run `s2p diagnose` first") from None
    if not isinstance(data, dict):
        raise ResultsError("expected an object", where=str(path), fix="run `s2p diagnose` again")
    try:
        return profile_from_json(data)
    except ResultsError as error:
        raise ResultsError(error.message, where=str(path), fix=error.fix) from None
