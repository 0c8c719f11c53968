"""Any multiple-choice benchmark as JSON lines beside its pictures.

One object a line: `item_id`, `category`, `question`, `choices` (texts without letters), `answer` (a letter, or null
where hidden) and `images` (paths relative to the file); where known also `skill` (default: the category's name if it is
one, else `other`), `prompt` (default: question and lettered options), `group`, `tags`, and `clean_images` (unmarked
pictures behind the item, for the guard). Pictures are read from inside the file's folder only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from synth.benchmarks._tables import Pictures
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.errors import BenchmarkError
from synth.types import LETTERS, Item, PluginOptions, Progress, Skill, narrow

_FIX = "see the docstring of synth.benchmarks.jsonl for the keys"


class Options(PluginOptions):
    """Where the items are."""

    path: str
    """The file, or a folder that holds one `*.jsonl` (or several and an `items.jsonl`)."""
    name: str = ""
    """How reports call the benchmark; by default the folder's name."""


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every item with its pictures. Raises BenchmarkError with file and line; there is no half a benchmark."""
    chosen = narrow(options, Options)
    file = _file(Path(chosen.path))
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchmarkError(f"cannot be read: {error}", where=str(file)) from None
    pictures = Pictures((file.parent,))
    items: list[Item] = []
    clean: dict[str, bytes] = {}
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        row = _row(line, where)
        items.append(_item(row, pictures, where))
        clean |= {name: pictures.file(name, where) for name in _strings(row, "clean_images", where)}
        if items[-1].item_id in seen:
            raise BenchmarkError(f"the item {items[-1].item_id!r} comes twice", where=where)
        seen.add(items[-1].item_id)
        if progress is not None:
            progress(number, len(lines))
    if not items:
        raise BenchmarkError("no items", where=str(file), fix=_FIX)
    digest = hashlib.sha256("\n".join(lines).encode("utf-8"))
    for name in sorted(pictures.seen):
        digest.update(hashlib.sha256(pictures.seen[name]).digest())
    return BenchmarkData(
        name=chosen.name or file.resolve().parent.name,
        revision=digest.hexdigest()[:16],
        items=tuple(items),
        clean_images=clean,
    )


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.jsonl"))
    if len(found) == 1:
        return found[0]
    if path / "items.jsonl" in found:
        return path / "items.jsonl"
    raise BenchmarkError(f"{len(found)} *.jsonl files", where=str(path), fix="give the file, or call it items.jsonl")


def _row(line: str, where: str) -> Mapping[str, object]:
    try:
        row: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise BenchmarkError(f"not JSON: {error.msg}", where=where, fix=_FIX) from None
    if not isinstance(row, dict):
        raise BenchmarkError(f"expected an object, found {type(row).__name__}", where=where, fix=_FIX)
    return row


def _item(row: Mapping[str, object], pictures: Pictures, where: str) -> Item:
    choices = _strings(row, "choices", where)
    names = _strings(row, "images", where)
    if not 2 <= len(choices) <= len(LETTERS) or not names:
        raise BenchmarkError(
            f"{len(choices)} choices and {len(names)} images", where=where, fix="at least 2 choices and one image"
        )
    question, category = _string(row, "question", where), _string(row, "category", where)
    return Item(
        item_id=_string(row, "item_id", where),
        category=category,
        skill=_skill(row, category, where),
        question=question,
        choices=choices,
        answer=_answer(row, len(choices), where),
        prompt=_string(row, "prompt", where) if "prompt" in row else item_prompt(question, choices),
        images=tuple(pictures.file(name, where) for name in names),
        group=_string(row, "group", where) if row.get("group") else "",
        tags=_tags(row, where),
    )


def _string(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise BenchmarkError(f"expected text under {key!r}, found {value!r}", where=where, fix=_FIX)
    return value


def _strings(row: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise BenchmarkError(f"expected a list of texts under {key!r}, found {value!r}", where=where, fix=_FIX)
    return tuple(value)


def _skill(row: Mapping[str, object], category: str, where: str) -> Skill:
    if "skill" not in row:
        name = category.lower().replace(" ", "_")
        return Skill(name) if name in set(Skill) else Skill.OTHER
    name = _string(row, "skill", where)
    if name not in set(Skill):
        raise BenchmarkError(f"no such skill: {name!r}", where=where, fix=f"one of {', '.join(Skill)}")
    return Skill(name)


def _answer(row: Mapping[str, object], n_options: int, where: str) -> str | None:
    value = row.get("answer")
    if value is None or value == "hidden":
        return None
    letter = value.strip("() ").upper() if isinstance(value, str) else ""
    if len(letter) != 1 or letter not in LETTERS[:n_options]:
        raise BenchmarkError(f"the answer {value!r} is none of {n_options} letters", where=where, fix=_FIX)
    return letter


def _tags(row: Mapping[str, object], where: str) -> dict[str, str]:
    value = row.get("tags") or {}
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise BenchmarkError(f"expected texts by name under 'tags', found {value!r}", where=where, fix=_FIX)
    return {str(name): str(entry) for name, entry in value.items()}


BENCHMARK = Benchmark(
    name="jsonl",
    version=1,
    options=Options,
    licence="as its owner states",
    skills={},
    human={},
    n_options={},
    choices={},
    load=load,
)
