"""YAML to a frozen tree of settings: an unknown key is an error that names the file, the dotted key and its neighbour.

A section that chooses a plug-in holds the plug-in's name under `name` and the plug-in's own options beside it:

    source: {name: folder, path: photos/}

`PluginChoice` keeps such a section until `resolve` checks it against the plug-in's options type.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from synth.errors import ConfigError
from synth.plugins import Folder, RecordT, load
from synth.types import JsonValue, PluginOptions

ConfigT = TypeVar("ConfigT", bound=BaseModel)


class Config(BaseModel):
    """Base of every config section: frozen, strict about keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PluginChoice(BaseModel):
    """A plug-in's name with its options, not yet checked against the plug-in."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    def settings(self) -> dict[str, JsonValue]:
        """The plug-in's own options as written."""
        return dict(self.model_extra or {})


def resolve(choice: PluginChoice, folder: Folder[RecordT], where: str) -> tuple[RecordT, PluginOptions]:
    """The plug-in and its checked options. `where` is the dotted key for error messages. Raises ConfigError."""
    try:
        record = load(folder, choice.name)
    except ConfigError as error:
        raise ConfigError(error.message, where=f"{where}.name", fix=error.fix) from None
    kind: type[PluginOptions] = getattr(record, "options", PluginOptions)
    return record, validate(choice.settings(), kind, where)


def resolve_named(
    name: str, overrides: Sequence[str], folder: Folder[RecordT], where: str
) -> tuple[RecordT, PluginOptions]:
    """`resolve` for a plug-in that the command line names, its options given as `a.b=c`."""
    return resolve(PluginChoice.model_validate({**parse_overrides(overrides), "name": name}), folder, where)


def validate(data: Mapping[str, JsonValue], kind: type[ConfigT], where: str) -> ConfigT:
    """Check plain data against a config type; all mistakes at once, in one ConfigError."""
    try:
        return kind.model_validate(dict(data))
    except ValidationError as error:
        lines = [_explain(kind, list(e["loc"]), e["type"], e["msg"], e.get("input")) for e in error.errors()]
        raise ConfigError("; ".join(lines), where=where) from None


def first_mistake(error: ValidationError) -> str:
    """The first wrong key of a file that a program wrote, and what is wrong with it."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or '(top level)'}: {first['msg']}"


def load_config(path: Path, kind: type[ConfigT], overrides: Sequence[str] = ()) -> ConfigT:
    """Read a YAML file, apply `a.b=c` overrides (values are YAML) and check. Raises ConfigError.

    A top-level key `extends: other.yaml` (beside this file) begins from that file: sections are merged key by key, all
    else is replaced, and so is a section that names another plug-in.
    """
    data = _extended(path, ())
    for text in overrides:
        _override(data, text)
    return validate(data, kind, str(path))


def parse_overrides(texts: Sequence[str]) -> dict[str, JsonValue]:
    """`a.b=c` texts as a nested mapping. Raises ConfigError."""
    data: dict[str, JsonValue] = {}
    for text in texts:
        _override(data, text)
    return data


def read_yaml(path: Path) -> dict[str, JsonValue]:
    """A YAML mapping from a file. Raises ConfigError when it is missing, too large or not a mapping."""
    if not path.is_file():
        raise ConfigError("no such config file", where=str(path), fix="give the path of a YAML file")
    if path.stat().st_size > 1_000_000:
        raise ConfigError("a config of more than 1 MB", where=str(path), fix="this does not look like a config")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}", where=str(path)) from None
    if not isinstance(data, dict):
        raise ConfigError(f"expected a mapping of keys, found {type(data).__name__}", where=str(path))
    return data


def _extended(path: Path, below: Sequence[Path]) -> dict[str, JsonValue]:
    data = read_yaml(path)
    if "extends" not in data:
        return data
    base = data.pop("extends")
    chain = (*below, path.resolve())
    if not isinstance(base, str):
        raise ConfigError(f"extends: expected a path, found {base!r}", where=str(path))
    if (path.parent / base).resolve() in chain:
        raise ConfigError(f"extends: {base} leads back to this file", where=str(path))
    return _merged(_extended(path.parent / base, chain), data)


def _merged(base: Mapping[str, JsonValue], top: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        if (
            isinstance(old, Mapping)
            and isinstance(value, Mapping)
            and old.get("name") == value.get("name", old.get("name"))
        ):
            merged[key] = _merged(old, value)
        else:
            merged[key] = value
    return merged


def dump(config: BaseModel) -> dict[str, JsonValue]:
    """The resolved tree as plain JSON values."""
    plain: dict[str, JsonValue] = config.model_dump(mode="json")
    return plain


def digest(*parts: JsonValue) -> str:
    """blake2b-128 hex of canonical JSON: the identity of settings and inputs."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _override(data: dict[str, JsonValue], text: str) -> None:
    key, equals, raw = text.partition("=")
    if not equals or not all(key.split(".")):
        raise ConfigError(f"expected a.b=value, found {text!r}", where="--set")
    try:
        value = yaml.safe_load(raw)
    except yaml.YAMLError:
        raise ConfigError(f"value of {key} is not valid YAML: {raw!r}", where="--set") from None
    node = data
    *parents, last = key.split(".")
    for part in parents:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{key}: {part} is not a section but {child!r}", where="--set")
        node = child
    node[last] = value


def _explain(kind: type[BaseModel], loc: Sequence[int | str], code: str, message: str, found: object) -> str:
    dotted = ".".join(str(part) for part in loc) or "(top level)"
    if code == "extra_forbidden":
        known = _keys_at(kind, loc[:-1])
        near = difflib.get_close_matches(str(loc[-1]), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return f"unknown key {dotted!r}: {hint}"
    if code == "missing":
        return f"missing key {dotted!r}"
    return f"{dotted}: {message}, found {found!r}"


def _keys_at(kind: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """Keys that the section at `loc` knows, following nested models as far as they are plain."""
    current: type[BaseModel] = kind
    for part in loc:
        field = current.model_fields.get(str(part))
        if field is None:
            continue  # an index into a list or mapping, or the tag of a union
        nested = [a for a in _arguments(field.annotation) if isinstance(a, type) and issubclass(a, BaseModel)]
        if not nested:
            return []
        current = nested[0]
    return list(current.model_fields)


def _arguments(annotation: object) -> list[object]:
    inner = getattr(annotation, "__args__", ())
    return [annotation, *(x for a in inner for x in _arguments(a))]
