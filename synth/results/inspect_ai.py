"""Logs of inspect-ai as JSON: one file a task and model, with every sample's messages, output and scores.

`{"version", "status", "eval": {"task", "model"}, "samples": [{"id", "epoch", "input", "choices", "target", "messages",
"output": {"choices": [{"message", "stop_reason"}], "completion"}, "scores": {name: {"value", "answer"}}}]}`.
Long contents may be references (`attachment://…`) into the sample's `attachments`. A sample that was run several times
has a row an epoch (tag `epoch`). The binary `.eval` is converted by `inspect log convert --to json`.
Source: UKGovernmentBEIS/inspect_ai, src/inspect_ai/log/_log.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from synth.contracts import ResultsFormat
from synth.errors import ResultsError
from synth.results import _values as values
from synth.results._datasets import benchmark_named
from synth.types import Reply

_HEAD = 65_536
_MARKS = (b'"version"', b'"status"', b'"eval"', b'"task"', b'"model"')
_CUT = ("max_tokens", "model_length", "length")
_ATTACHED = "attachment://"
_CATEGORY = ("category", "sub_task", "task", "question_type", "type", "subject")


@dataclass(frozen=True)
class _About:
    """What a log says of all its samples."""

    task: str
    model: str


def _is_log(file: Path) -> bool:
    if file.suffix.lower() != ".json" or not file.is_file():
        return False
    try:
        with file.open("rb") as handle:
            head = handle.read(_HEAD)
    except OSError:
        return False
    return head.lstrip()[:1] == b"{" and all(mark in head for mark in _MARKS)


def _files(path: Path) -> list[Path]:
    candidates = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [file for file in candidates if _is_log(file)]


def sniff(path: Path) -> bool:
    """True for a log, or a folder with one."""
    return bool(_files(path))


def read(path: Path) -> Iterator[Reply]:
    """Every sample of every log, an epoch a row.

    Raises ResultsError for a log without samples (with the run's own error, where it failed) and where a folder holds
    two logs of one task and model.
    """
    files = _files(path)
    if not files:
        raise ResultsError("no log of inspect-ai", where=str(path), fix="inspect log convert --to json FILE.eval")
    seen: dict[tuple[str, str], Path] = {}
    for file in files:
        log = _load(file)
        about = _object(log.get("eval"), f"{file}: eval")
        task = (values.plain(about.get("task")) or file.stem).rpartition("/")[2]
        model = values.plain(about.get("model")) or file.parent.name
        other = seen.setdefault((task, model), file)
        if other != file:
            twice = f"{other.name} and {file.name}"
            raise ResultsError(f"two logs of {task} by {model}: {twice}", where=str(path), fix="give one of them")
        yield from _samples(log, _About(task, model), file)


def _load(file: Path) -> Mapping[str, object]:
    try:
        data: object = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ResultsError(f"not JSON: {error.msg}", where=f"{file}:{error.lineno}", fix="is the file whole?") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot be read: {error}", where=str(file), fix="fetch the file again") from None
    return _object(data, str(file))


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ResultsError(f"expected an object, found {type(value).__name__}", where=where)
    return value


def _samples(log: Mapping[str, object], about: _About, file: Path) -> Iterator[Reply]:
    status = values.plain(log.get("status")) or "unknown"
    samples = log.get("samples")
    if not isinstance(samples, list) or not samples:
        error = log.get("error")
        told = values.plain(error.get("message")) if isinstance(error, Mapping) else None
        raise ResultsError(
            f"no samples; the run's status is {status}" + (f": {told}" if told else ""),
            where=str(file),
            fix="run it again, with samples logged",
        )
    tags = {} if status == "success" else {"run_status": status}
    table = [(f"{file}: samples[{i}]", _object(sample, f"{file}: samples[{i}]")) for i, sample in enumerate(samples)]
    repeated = any(sample.get("epoch", 1) != 1 for _, sample in table)
    for where, sample in table:
        epoch = {"epoch": values.plain(sample.get("epoch")) or "1"} if repeated else {}
        yield _reply(sample, about, where, {**tags, **epoch})


def _reply(sample: Mapping[str, object], about: _About, where: str, tags: Mapping[str, str]) -> Reply:
    own_id = values.plain(sample.get("id"))
    if own_id is None:
        raise ResultsError("no id", where=where)
    output = sample.get("output")
    first = _first(output.get("choices")) if isinstance(output, Mapping) else {}
    error = sample.get("error")
    if isinstance(error, Mapping):
        tags = {**tags, "harness_error": (values.plain(error.get("message")) or "unknown")[:200]}
    sent = _Content.of(_asked(sample.get("messages") or sample.get("input")), sample)
    given = _Content.of(sample.get("input"), sample)
    if len(sent.images) > 1:
        tags = {**tags, "image_order": values.order_hash(sent.images)}
    target = sample.get("target")
    if isinstance(target, list):
        if len(target) > 1:
            raise ResultsError(f"{len(target)} right answers: no single choice", where=where)
        target = target[0] if target else None
    choices = values.options(sample.get("choices"), where) or values.listed(sent.text, target)
    if not choices and values.is_yes_no(target):
        choices = values.YES_NO
    scores = sample.get("scores")
    benchmark, rest = benchmark_named(about.task)
    return Reply(
        item_id=f"{about.task}:{own_id}" if own_id.isdigit() else own_id.replace(" ", "_"),
        category=_category(sample) or rest or about.task,
        model=about.model,
        text=None if isinstance(error, Mapping) else _said(output, first, sample),
        gold=values.gold_letter(target, choices, where),
        released=_released(scores) if isinstance(scores, Mapping) else None,
        choices=choices,
        n_images=len(given.images),
        benchmark=benchmark,
        prompt=sent.text,
        question=given.text,
        truncated=first.get("stop_reason") in _CUT,
        harness_correct=_verdict(scores) if isinstance(scores, Mapping) else None,
        group=f"{about.task}:{own_id}" if "epoch" in tags else "",
        tags={**tags, "images_sent": str(len(sent.images))},
    )


def _category(sample: Mapping[str, object]) -> str | None:
    metadata = sample.get("metadata")
    told = metadata if isinstance(metadata, Mapping) else {}
    return next((values.plain(told[key]) for key in _CATEGORY if values.plain(told.get(key))), None)


# ------------------------------------------------------------------------------------------------ messages and scores


@dataclass(frozen=True)
class _Content:
    """What a message, or a list of messages or parts, holds."""

    text: str
    images: tuple[str, ...]
    """Data URIs, paths or references, in their order."""

    @classmethod
    def of(cls, value: object, sample: Mapping[str, object]) -> _Content:
        """Collect texts and images in reading order; references are looked up in the sample's attachments."""
        attachments = sample.get("attachments")
        attached = attachments if isinstance(attachments, Mapping) else {}
        texts: list[str] = []
        images: list[str] = []
        waiting: list[object] = [value]
        while waiting:
            part = waiting.pop(0)
            if isinstance(part, str):
                known = attached.get(part.removeprefix(_ATTACHED)) if part.startswith(_ATTACHED) else None
                texts.append(known if isinstance(known, str) else part)
            elif isinstance(part, list):
                waiting = [*part, *waiting]
            elif isinstance(part, Mapping) and part.get("type") == "image":
                images.append(values.plain(part.get("image")) or "")
            elif isinstance(part, Mapping):
                # Thoughts ("reasoning") are neither question nor answer.
                waiting = [part["content"] if "content" in part else part.get("text"), *waiting]
        return cls("\n".join(texts), tuple(images))


def _asked(messages: object) -> object:
    """The messages before the model's first one."""
    if not isinstance(messages, list):
        return messages
    roles = [message.get("role") if isinstance(message, Mapping) else None for message in messages]
    return messages[: roles.index("assistant")] if "assistant" in roles else messages


def _first(choices: object) -> Mapping[str, object]:
    found = choices[0] if isinstance(choices, list) and choices else {}
    return found if isinstance(found, Mapping) else {}


def _said(output: object, first: Mapping[str, object], sample: Mapping[str, object]) -> str:
    completion = output.get("completion") if isinstance(output, Mapping) else None
    return _Content.of(completion or first.get("message"), sample).text


def _released(scores: Mapping[str, object]) -> str | None:
    """The letter that a scorer read; the multiple-choice scorer's silence is a "Z"."""
    for name, score in scores.items():
        answer = values.plain(score.get("answer")) if isinstance(score, Mapping) else None
        found = values.letter(answer)
        if found is not None or name == "choice":
            return found or "Z"
    return None


def _verdict(scores: Mapping[str, object]) -> bool | None:
    """What the scorers say, where they agree."""
    words = {values.verdict(score.get("value")) for score in scores.values() if isinstance(score, Mapping)} - {None}
    return words.pop() if len(words) == 1 else None


RESULTS = ResultsFormat(
    name="inspect_ai",
    version=1,
    benchmark="",
    sniff=sniff,
    read=read,
    looks_for="a JSON log with version, status, eval and samples (inspect-ai; convert .eval files to JSON first)",
)
