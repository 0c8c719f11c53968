"""Result files → outcomes: pick the format, read the rows, read each reply, score it. Rows in are outcomes out.

`outcomes.jsonl` holds one object a line in the order of `_KEYS`; `group`, `tags` and `probabilities` only where they
are not empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from synth.diagnosis.answers import Reading, read_answer
from synth.errors import ResultsError
from synth.files import atomic
from synth.plugins import BENCHMARKS, RESULTS, load, load_all, names
from synth.types import LETTERS, Benchmark, JsonValue, Outcome, Reply, ResultsFormat, Skill

_KEYS = (
    "item_id", "category", "skill", "model", "text", "letter", "reason", "gold", "correct", "n_options", "n_images",
)  # fmt: skip
_FIX = "write the file again with `s2p diagnose` or `s2p evaluate`"
ValueT = TypeVar("ValueT")


def read_results(path: Path, format: str = "auto", trust_released: bool = False) -> list[Outcome]:
    """The outcomes of a result file or folder.

    Args:
        path: what a run of a benchmark left behind; our own `outcomes.jsonl` is taken as it is.
        format: name of a results plug-in, or "auto" to recognise it.
        trust_released: take the letters that the file itself brings ("Z" is a refusal) and do not read the replies.

    Raises ResultsError for an unknown shape, a damaged file or a row that cannot be scored, ConfigError for an unknown
    format. A row whose right answer is hidden has reason `unscored`, `correct` None, and still its letter; why there is
    none is then in its tag `reading`. Where our letter is not the file's, the tag `released` holds the file's.
    """
    own = _own(path)
    if own is not None and format in ("auto", "jsonl"):
        return load_outcomes(own)
    record = _format(path, format)
    benchmark = load(BENCHMARKS, record.benchmark) if record.benchmark else None
    replies = list(record.read(path))
    if not replies:
        raise ResultsError("no rows", where=str(path), fix="is this the run's result file?")
    if trust_released and all(reply.released is None for reply in replies):
        raise ResultsError("the file brings no letters of its own", where=str(path), fix="leave out --trust-extracted")
    known = [benchmark] if benchmark is not None else load_all(BENCHMARKS)
    return [_score(reply, _home(reply.category, known), trust_released) for reply in replies]


def benchmark_of(path: Path, format: str = "auto") -> Benchmark | None:
    """The benchmark whose results these are: the format's own, else the only one that has all of the categories."""
    own = _own(path)
    if own is not None and format in ("auto", "jsonl"):
        categories = {outcome.category for outcome in load_outcomes(own)}
    else:
        record = _format(path, format)
        if record.benchmark:
            return load(BENCHMARKS, record.benchmark)
        categories = {reply.category for reply in record.read(path)}
    fitting = [b for b in load_all(BENCHMARKS) if categories and categories <= b.skills.keys()]
    return fitting[0] if len(fitting) == 1 else None


def _format(path: Path, format: str) -> ResultsFormat:
    if not path.exists():
        raise ResultsError("no such file or folder", where=str(path), fix="check the path")
    if format != "auto":
        return load(RESULTS, format)
    records = load_all(RESULTS)
    # A format that belongs to a benchmark knows more than the general one.
    for record in sorted(records, key=lambda record: record.benchmark == ""):
        if record.sniff(path):
            return record
    raise ResultsError(
        f"not recognised; looked for: {', '.join(names(RESULTS))}",
        where=str(path),
        fix="name the --format, give the folder of one model, or convert to JSON lines (synth.results.jsonl)",
    )


# ------------------------------------------------------------------------------------------------------------- scoring


def _home(category: str, known: Iterable[Benchmark]) -> Benchmark | None:
    return next((benchmark for benchmark in known if category in benchmark.skills), None)


def _score(reply: Reply, benchmark: Benchmark | None, trust_released: bool) -> Outcome:
    skills, n_by_category, texts = (
        (benchmark.skills, benchmark.n_options, benchmark.choices) if benchmark is not None else ({}, {}, {})
    )
    choices = reply.choices or texts.get(reply.category, ())
    n_options = reply.n_options or len(reply.choices) or n_by_category.get(reply.category, 0)
    if not n_options:
        raise ResultsError(
            f"{reply.item_id}: nobody says how many options there are, so chance is unknown",
            fix="add n_options or choices to the rows",
        )
    released = _released(reply.released, n_options)
    if released is not None and (trust_released or reply.text is None):
        reading = released
    else:
        reading = read_answer(reply.text, n_options, choices)
    tags = {}
    if reading.note:
        tags["reading"] = reading.note
    if released is not None and released.letter != reading.letter:
        tags["released"] = released.letter or "Z"
    reason = reading.reason
    if reply.gold is None:
        if reason is not None:
            tags["reading"] = reason
        reason = "unscored"
    return Outcome(
        item_id=reply.item_id,
        category=reply.category,
        skill=skills.get(reply.category) or _skill_named(reply.category),
        model=reply.model,
        text=reply.text,
        letter=reading.letter,
        reason=reason,
        gold=reply.gold,
        correct=None if reply.gold is None else reading.letter == reply.gold,
        n_options=n_options,
        n_images=reply.n_images,
        tags=tags,
    )


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
    }
    return row | {key: value for key, value in extras.items() if value}


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
