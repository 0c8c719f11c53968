"""Result files → outcomes: pick the format, read the rows, read each reply, score it. Rows in are outcomes out.

`outcomes.jsonl` holds one object a line in the order of `_KEYS`; `group`, `tags`, `probabilities`, what follows from
them (`option_mass`, `margin`), `prompt_hash`, `harness_correct` and `judge` only where they are known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from synth.contracts import Benchmark, BenchmarkData, ResultsFormat
from synth.diagnosis.answers import Reading, read_answer
from synth.diagnosis.joining import fold, join
from synth.errors import ResultsError
from synth.files import atomic
from synth.plugins import BENCHMARKS, RESULTS, load, load_all, names
from synth.types import LETTERS, Item, JsonValue, Outcome, Reply, Skill

_KEYS = (
    "item_id", "category", "skill", "model", "text", "letter", "reason", "gold", "correct", "n_options", "n_images",
)  # fmt: skip
_FIX = "write the file again with `s2p diagnose` or `s2p evaluate`"
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One model's results."""

    model: str
    outcomes: list[Outcome]
    benchmark: Benchmark | None
    """Whose items these are: named by the format or the rows, else the only one that has the categories."""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """What lies at a path: outcomes of ours, or rows that are still to be read."""

    outcomes: list[Outcome]
    replies: list[Reply]
    benchmark: Benchmark | None


def read_results(
    path: Path,
    format: str = "auto",
    trust_released: bool = False,
    items: BenchmarkData | None = None,
    columns: Mapping[str, str] = MappingProxyType({}),
) -> list[Outcome]:
    """The outcomes of a result file or folder, one a row.

    Args:
        path: what a run of a benchmark left behind; our own `outcomes.jsonl` is taken as it is.
        format: name of a results plug-in, or "auto" to recognise it by content.
        trust_released: take the letters that the file itself brings ("Z" is a refusal) and do not read the replies.
        items: the benchmark that was run: ids, categories, options, right answers and groups are then its own
            (`synth.diagnosis.joining` says how rows find their items, and tells what is missing or unknown).
        columns: our field → the file's column, for tables whose names are not recognised.

    Raises ResultsError for an unknown shape, a damaged file or a row that cannot be scored, ConfigError for an unknown
    format. A row whose right answer is hidden has reason `unscored`, `correct` None, and still its letter; why there is
    none is then in its tag `reading`. Where our letter is not the file's, the tag `released` holds the file's. Where
    letter and option text disagree, `conflict_letter` and `conflict_text` hold both. Where the images sent are not as
    many as the item has, the tags `images` and `n_images_mismatch` say so.
    """
    return _scored(_source(path, format, columns), path, trust_released, items)


def _source(path: Path, format: str, columns: Mapping[str, str]) -> _Source:
    own = _own(path)
    if own is not None and format in ("auto", "jsonl") and not columns:
        outcomes = load_outcomes(own)
        return _Source(outcomes=outcomes, replies=[], benchmark=_only_home({o.category for o in outcomes}))
    record = _format(path, format, columns)
    replies = list(_replies(record, path, columns))
    named = {record.benchmark} if record.benchmark else {reply.benchmark for reply in replies}
    if len(named) == 1 and named <= set(names(BENCHMARKS)):
        return _Source(outcomes=[], replies=replies, benchmark=load(BENCHMARKS, named.pop()))
    return _Source(outcomes=[], replies=replies, benchmark=_only_home({reply.category for reply in replies}))


def _only_home(categories: set[str]) -> Benchmark | None:
    fitting = [b for b in load_all(BENCHMARKS) if categories and categories <= b.skills.keys()]
    return fitting[0] if len(fitting) == 1 else None


def _scored(source: _Source, path: Path, trust_released: bool, items: BenchmarkData | None) -> list[Outcome]:
    if source.outcomes:
        return source.outcomes
    replies = source.replies
    if not replies:
        raise ResultsError("no rows", where=str(path), fix="is this the run's result file?")
    if trust_released and all(reply.released is None for reply in replies):
        raise ResultsError("the file brings no letters of its own", where=str(path), fix="leave out --trust-extracted")
    home = _homes(replies)
    placed = [_placed(reply, home[reply.benchmark, reply.category]) for reply in replies]
    pairs = join(placed, items, str(path)) if items is not None else [(reply, None) for reply in placed]
    return [
        score_reply(reply, home[raw.benchmark, raw.category], item, trust_released)
        for raw, (reply, item) in zip(replies, pairs, strict=True)
    ]


def read_runs(
    path: Path,
    format: str = "auto",
    trust_released: bool = False,
    items: BenchmarkData | None = None,
    columns: Mapping[str, str] = MappingProxyType({}),
) -> list[Run]:
    """Every run under a path, each file read once: a file, a folder of one or several models, a folder of those.

    One level of folders is searched where the folder itself holds no results. Raises ResultsError as `read_results`
    does, and where two places hold the same model.
    """
    places = [path]
    if path.is_dir() and format == "auto" and not columns and _own(path) is None and not _fitting(path):
        entries = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
        places = [entry for entry in entries if _own(entry) is not None or _fitting(entry)] or [path]
    found: dict[str, Run] = {}
    origin: dict[str, Path] = {}
    for place in places:
        source = _source(place, format, columns)
        for outcome in _scored(source, place, trust_released, items):
            if origin.setdefault(outcome.model, place) != place:
                twice = f"{origin[outcome.model].name} and {place.name}"
                raise ResultsError(
                    f"{outcome.model} comes twice: {twice}", where=str(path), fix="read the two runs apart"
                )
            run = Run(model=outcome.model, outcomes=[], benchmark=source.benchmark)
            found.setdefault(outcome.model, run).outcomes.append(outcome)
    return list(found.values())


# ------------------------------------------------------------------------------------------------------------- formats


def _fitting(path: Path) -> list[ResultsFormat]:
    """The formats of a path: those that know their writer, else the general ones."""
    found = [record for record in load_all(RESULTS) if record.sniff(path)]
    return [record for record in found if record.read_mapped is None] or found


def _format(path: Path, format: str, columns: Mapping[str, str]) -> ResultsFormat:
    if not path.exists():
        raise ResultsError("no such file or folder", where=str(path), fix="check the path")
    if format != "auto":
        return load(RESULTS, format)
    found = _fitting(path)
    records = load_all(RESULTS)
    if columns:
        found = [record for record in records if record.read_mapped is not None]
    if len(found) > 1:
        both = ", ".join(record.name for record in found)
        raise ResultsError(f"could be any of {both}", where=str(path), fix="name the --format, or give one file")
    if not found:
        looked = "".join(f"\n  {record.name}: {record.looks_for}" for record in records)
        raise ResultsError(
            f"not recognised; looked for:{looked}",
            where=str(path),
            fix="name the --format, give the folder of one model, or say with --map which column is which",
        )
    return found[0]


def _replies(record: ResultsFormat, path: Path, columns: Mapping[str, str]) -> Iterable[Reply]:
    if not columns:
        return record.read(path)
    if record.read_mapped is None:
        raise ResultsError(f"{record.name} takes no column mapping", where=str(path), fix="leave out --map")
    return record.read_mapped(path, columns)


# ------------------------------------------------------------------------------------------------------------- scoring


def _homes(replies: Iterable[Reply]) -> dict[tuple[str, str], Benchmark | None]:
    """(benchmark, category) of the rows → the plug-in; without a name, the only one that has the category."""
    known = {benchmark.name: benchmark for benchmark in load_all(BENCHMARKS)}
    homes: dict[tuple[str, str], Benchmark | None] = {}
    for key in {(reply.benchmark, reply.category) for reply in replies}:
        fitting = [benchmark for benchmark in known.values() if key[1] in benchmark.skills]
        homes[key] = known.get(key[0]) or (fitting[0] if len(fitting) == 1 else None)
    return homes


def _placed(reply: Reply, benchmark: Benchmark | None) -> Reply:
    """The row with its category as the benchmark writes it."""
    if benchmark is None or reply.category in benchmark.skills:
        return reply
    written = {fold(name): name for name in benchmark.skills}
    only = next(iter(benchmark.skills)) if len(benchmark.skills) == 1 else reply.category
    return replace(reply, category=written.get(fold(reply.category), only))


def score_reply(reply: Reply, benchmark: Benchmark | None, item: Item | None, trust_released: bool) -> Outcome:
    """One row, read and scored; see `read_results`. Raises ResultsError where nobody tells the number of options."""
    texts = benchmark.choices if benchmark is not None else {}
    fixed = benchmark.n_options.get(reply.category, 0) if benchmark is not None else 0
    choices = reply.choices or texts.get(reply.category, ())
    n_options = reply.n_options or len(reply.choices) or fixed
    if not n_options:
        raise ResultsError(
            f"{reply.item_id}: nobody says how many options there are, so chance is unknown",
            fix="add n_options or choices to the rows, or give the items of the benchmark that was run",
        )
    tags = dict(reply.tags)
    released = _released(reply.released, n_options)
    reading = _reading(reply, released if trust_released or reply.text is None else None, n_options, choices)
    told = {"reading": reading.note, "conflict_letter": reading.by_letter, "conflict_text": reading.by_text}
    tags |= {key: value for key, value in told.items() if value}
    if released is not None and released.letter != reading.letter:
        tags["released"] = released.letter or "Z"
    expected = len(item.images) if item is not None else reply.n_images
    sent = int(tags.pop("images_sent", expected))
    if sent != expected:
        tags |= {"images": f"sent {sent} of {expected}", "n_images_mismatch": "yes"}
    reason = reading.reason
    if reply.gold is None:
        if reason is not None:
            tags["reading"] = reason
        reason = "unscored"
    return Outcome(
        item_id=reply.item_id,
        category=reply.category,
        skill=item.skill if item is not None else _skill(reply.category, benchmark),
        model=reply.model,
        text=reply.text,
        letter=reading.letter,
        reason=reason,
        gold=reply.gold,
        correct=None if reply.gold is None else reading.letter == reply.gold,
        n_options=n_options,
        n_images=sent,
        group=reply.group,
        tags=tags,
        prompt_hash=hashlib.sha256(reply.prompt.encode("utf-8", "replace")).hexdigest()[:16] if reply.prompt else "",
        harness_correct=reply.harness_correct,
    )


def _reading(reply: Reply, released: Reading | None, n_options: int, choices: Sequence[str]) -> Reading:
    if reply.text is None and "harness_error" in reply.tags:
        return Reading(None, "error")
    if released is not None:
        return released
    reading = read_answer(reply.text, n_options, choices)
    return Reading(None, "truncated") if reply.truncated and reading.letter is None else reading


def _skill(category: str, benchmark: Benchmark | None) -> Skill:
    skills = benchmark.skills if benchmark is not None else {}
    # Some sets have one skill whatever their categories.
    only = set(skills.values())
    return skills.get(category) or (only.pop() if len(only) == 1 else _skill_named(category))


def _released(letter: str | None, n_options: int) -> Reading | None:
    if letter is None:
        return None
    if letter == "Z":
        return Reading(None, "refusal")
    return Reading(letter, None) if letter in LETTERS[:n_options] else Reading(None, "out_of_range")


def _skill_named(category: str) -> Skill:
    name = category.lower().replace(" ", "_").replace("-", "_")
    return Skill(name) if name in set(Skill) else Skill.OTHER


# ------------------------------------------------------------------------------------------------------ outcomes.jsonl


def write_outcomes(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write outcomes.jsonl atomically."""
    with atomic(path) as handle:
        for outcome in outcomes:
            handle.write((json.dumps(_to_row(outcome), allow_nan=False) + "\n").encode("ascii"))


def _to_row(outcome: Outcome) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = {key: getattr(outcome, key) for key in _KEYS}
    extras: dict[str, JsonValue] = {
        "group": outcome.group,
        "tags": dict(outcome.tags),
        "probabilities": dict(outcome.probabilities),
        "option_mass": outcome.option_mass,
        "margin": outcome.margin,
        "prompt_hash": outcome.prompt_hash,
        "harness_correct": outcome.harness_correct,
        "judge": outcome.judge,
    }
    return row | {key: value for key, value in extras.items() if value or value == 0}  # False and 0.0 are told


def load_outcomes(path: Path) -> list[Outcome]:
    """Read an outcomes.jsonl, or the one of a folder. Raises ResultsError with file and line."""
    file = path / "outcomes.jsonl" if path.is_dir() else path
    outcomes = []
    try:
        with file.open(encoding="utf-8") as handle:
            for number, line in enumerate(handle, start=1):
                if line.strip():
                    outcomes.append(_from_line(line, f"{file}:{number}"))
    except FileNotFoundError:
        raise ResultsError("no such file", where=str(file), fix="run `s2p diagnose` or `s2p evaluate` first") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot be read: {error}", where=str(file), fix=_FIX) from None
    return outcomes


def _own(path: Path) -> Path | None:
    """The outcomes.jsonl of ours that a path names, if it does."""
    file = path / "outcomes.jsonl" if path.is_dir() else path
    if file.suffix != ".jsonl" or not file.is_file():
        return None
    try:
        with file.open(encoding="utf-8") as handle:
            first = json.loads(next((line for line in handle if line.strip()), "null"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return None
    return file if isinstance(first, dict) and set(_KEYS) <= first.keys() else None


def _from_line(line: str, where: str) -> Outcome:
    try:
        row: object = json.loads(line)
    except json.JSONDecodeError as error:
        raise ResultsError(f"not JSON: {error.msg}", where=where, fix=_FIX) from None
    if not isinstance(row, dict) or not set(_KEYS) <= row.keys():
        missing = [key for key in _KEYS if not isinstance(row, dict) or key not in row]
        raise ResultsError(f"no key {', '.join(missing)}", where=where, fix=_FIX)
    cells = _Cells(row, where)
    skill = cells.get("skill", str)
    if skill not in set(Skill):
        raise ResultsError(f"no such skill: {skill!r}", where=where, fix=f"one of {', '.join(Skill)}")
    return Outcome(
        item_id=cells.get("item_id", str),
        category=cells.get("category", str),
        skill=Skill(skill),
        model=cells.get("model", str),
        text=cells.maybe("text", str),
        letter=cells.maybe("letter", str),
        reason=cells.maybe("reason", str),
        gold=cells.maybe("gold", str),
        correct=cells.maybe("correct", bool),
        n_options=cells.get("n_options", int),
        n_images=cells.get("n_images", int),
        group=cells.maybe("group", str) or "",
        tags={key: str(value) for key, value in cells.table("tags").items()},
        probabilities={key: float(value) for key, value in cells.table("probabilities").items()},
        prompt_hash=cells.maybe("prompt_hash", str) or "",
        harness_correct=cells.maybe("harness_correct", bool),
        judge=cells.maybe("judge", str),
    )


class _Cells:
    """The cells of one row, by type."""

    def __init__(self, row: Mapping[str, object], where: str) -> None:
        self._row = row
        self._where = where

    def maybe(self, key: str, kind: type[ValueT]) -> ValueT | None:
        """The value, or None where it is null or absent."""
        value = self._row.get(key)
        if value is None:
            return None
        # bool is an int to Python, and "correct": 1 is a mistake worth telling.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ResultsError(f"expected {kind.__name__} under {key!r}, found {value!r}", where=self._where, fix=_FIX)
        return value

    def get(self, key: str, kind: type[ValueT]) -> ValueT:
        """The value; null is an error."""
        value = self.maybe(key, kind)
        if value is None:
            raise ResultsError(f"expected {kind.__name__} under {key!r}, found null", where=self._where, fix=_FIX)
        return value

    def table(self, key: str) -> dict[str, str | int | float]:
        """An object of plain values."""
        value = self._row.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(v, str | int | float) for v in value.values()):
            raise ResultsError(f"expected an object under {key!r}, found {value!r}", where=self._where, fix=_FIX)
        return value
