"""Replies as JSON lines: the general way in, and our own `outcomes.jsonl`.

One object a line: `item_id`, `category`, `model`, `text` (or null) and `gold` (a letter, or null where hidden); where
known also `released` (the letter that another tool read, "Z" for none), `choices`, `n_options`, `n_images`, `images`
(names or hashes of the images that the model was sent, in order), `prompt`, `question`, `group`, `truncated`,
`harness_correct` and `tags`. Other keys are left alone. A line of outcomes.jsonl has `letter` in the place of
`released`. Files with other column names are read by synth.results.table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from synth.contracts import ResultsFormat
from synth.errors import ResultsError
from synth.results._values import order_hash
from synth.types import LETTERS, Reply

_KEYS = ("item_id", "category", "model", "text", "gold")
_LETTER = re.compile(r"\s*\(?\s*([A-Za-z])\s*[).]?\s*")
_FIX = "each line: {" + ", ".join(f'"{key}"' for key in _KEYS) + "}; see the docstring of synth.results.jsonl"


def _file(path: Path) -> Path:
    return path / "outcomes.jsonl" if path.is_dir() else path


def sniff(path: Path) -> bool:
    """True where the first line is an object with all of the keys that a row must have."""
    file = _file(path)
    if file.suffix.lower() not in (".jsonl", ".ndjson") or not file.is_file():
        return False
    try:
        with file.open(encoding="utf-8") as handle:
            first = json.loads(next((line for line in handle if line.strip()), "null"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return False
    return isinstance(first, dict) and set(_KEYS) <= first.keys()


def read(path: Path) -> Iterator[Reply]:
    """One reply a line; empty lines are skipped. Raises ResultsError with file and line."""
    file = _file(path)
    try:
        with file.open(encoding="utf-8") as handle:
            for number, line in enumerate(handle, start=1):
                if line.strip():
                    yield _reply(line, f"{file}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot be read: {error}", where=str(file), fix="give a UTF-8 file of JSON lines") from None


def _reply(line: str, where: str) -> Reply:
    try:
        row: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise ResultsError(f"not JSON: {error.msg}", where=where, fix=_FIX) from None
    if not isinstance(row, dict):
        raise ResultsError(f"expected an object, found {type(row).__name__}", where=where, fix=_FIX)
    missing = [key for key in _KEYS if key not in row]
    if missing:
        raise ResultsError(f"no key {', '.join(missing)}", where=where, fix=_FIX)
    choices = _texts(row, "choices", where)
    if len(choices) > len(LETTERS):
        raise ResultsError(f"{len(choices)} options are more than there are letters", where=where)
    n_options = _count(row, "n_options", len(choices), where)
    gold = _letter(row, "gold", where)
    if gold is not None and n_options and LETTERS.index(gold) >= n_options:
        raise ResultsError(f"the right letter {gold} is none of {n_options} options", where=where)
    released = _letter(row, "released", where)
    if "letter" in row and "reason" in row:
        released = _letter(row, "letter", where) or "Z"
    images = _texts(row, "images", where)
    tags = {"images_sent": str(len(images) or _count(row, "n_images", 1, where))} if images or "n_images" in row else {}
    if len(images) > 1:
        tags["image_order"] = order_hash(images)
    return Reply(
        item_id=_text(row, "item_id", where) or "",
        category=_text(row, "category", where) or "",
        model=_text(row, "model", where) or "",
        text=_text(row, "text", where, none=True),
        gold=gold,
        released=released,
        choices=choices,
        n_options=n_options,
        n_images=_count(row, "n_images", len(images) or 1, where),
        prompt=_text(row, "prompt", where, none=True) or "" if "prompt" in row else "",
        question=_text(row, "question", where, none=True) or "" if "question" in row else "",
        truncated=_truth(row, "truncated", where) is True,
        harness_correct=_truth(row, "harness_correct", where),
        group=_text(row, "group", where, none=True) or "" if "group" in row else "",
        tags=_tags(row, where) | tags,
    )


def _text(row: Mapping[str, object], key: str, where: str, *, none: bool = False) -> str | None:
    value = row[key]
    if value is None and none:
        return None
    if not isinstance(value, str) or not (value or none):
        raise ResultsError(f"expected text under {key!r}, found {value!r}", where=where, fix=_FIX)
    # A lone surrogate (half an emoji) is legal in JSON and cannot be written as UTF-8 again.
    return value.encode("utf-8", "replace").decode("utf-8")


def _letter(row: Mapping[str, object], key: str, where: str) -> str | None:
    value = row.get(key)
    if value is None or value == "hidden":
        return None
    m = _LETTER.fullmatch(value) if isinstance(value, str) else None
    if m is None:
        raise ResultsError(f"expected a letter or null under {key!r}, found {value!r}", where=where, fix=_FIX)
    return m[1].upper()


def _texts(row: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    value = row.get(key) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ResultsError(f"expected a list of texts under {key!r}, found {value!r}", where=where, fix=_FIX)
    return tuple(value)


def _truth(row: Mapping[str, object], key: str, where: str) -> bool | None:
    value = row.get(key)
    if value is not None and not isinstance(value, bool):
        raise ResultsError(f"expected true, false or null under {key!r}, found {value!r}", where=where, fix=_FIX)
    return value


def _tags(row: Mapping[str, object], where: str) -> dict[str, str]:
    value = row.get("tags") or {}
    if not isinstance(value, dict):
        raise ResultsError(f"expected an object under 'tags', found {value!r}", where=where, fix=_FIX)
    return {key: str(told) for key, told in value.items()}


def _count(row: Mapping[str, object], key: str, default: int, where: str) -> int:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1000:
        raise ResultsError(f"expected a count under {key!r}, found {value!r}", where=where, fix=_FIX)
    return value


RESULTS = ResultsFormat(
    name="jsonl",
    version=2,
    benchmark="",
    sniff=sniff,
    read=read,
    looks_for=f"JSON lines with the keys {', '.join(_KEYS)} (ours)",
)
