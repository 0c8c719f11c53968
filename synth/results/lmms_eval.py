"""lmms-eval samples: `<date>_samples_<task>.jsonl`, one file a task, beside `<date>_results.json` in a folder a model.

A line has `doc_id` (row of the split), `target`, `filtered_resps`, `resps` (left out where equal), `input` (the prompt)
and one object or number a metric, such as `blink_acc` {id, gt_content, pred_parsed, sub_task, is_correct}. The file is
opened to append: a second run with the same date writes every line again, and all of them are read here.
Source: EvolvingLMMs-Lab/lmms-eval, lmms_eval/loggers/evaluation_tracker.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from synth.contracts import ResultsFormat
from synth.errors import ResultsError
from synth.results import _values as values
from synth.results._datasets import benchmark_named, images_of
from synth.results._tables import Row, columns, rows
from synth.types import Reply

_FILE = re.compile(r"(?:(?P<date>.+?)_)?samples_(?P<task>.+)\.jsonl")
_METRIC = re.compile("acc|match|score|correct")
_KNOWN = {
    "doc_id", "target", "doc", "arguments", "resps", "filtered_resps", "doc_hash", "prompt_hash", "target_hash",
    "input", "token_counts", "input_media",
}  # fmt: skip
_VERDICTS = ("is_correct", "correct", "score")
_GOLD = ("gt_content", "ground_truth")
_CATEGORY = ("sub_task", "task", "category")
_READ = ("pred_parsed", "prediction")


def _is_samples(file: Path) -> bool:
    if file.suffix.lower() != ".jsonl" or not file.is_file():
        return False
    keys = set(columns(file))
    return {"doc_id", "target"} <= keys and bool({"resps", "filtered_resps"} & keys)


def _files(path: Path) -> list[Path]:
    candidates = sorted(path.glob("*samples_*.jsonl")) if path.is_dir() else [path]
    return [file for file in candidates if _is_samples(file)]


def sniff(path: Path) -> bool:
    """True for a file of samples, or a folder with one."""
    return bool(_files(path))


def read(path: Path) -> Iterator[Reply]:
    """Every line of every task. Raises ResultsError with file and line, and where a folder holds two runs of a task."""
    files = _files(path)
    if not files:
        raise ResultsError("no samples of lmms-eval", where=str(path), fix="run it with --log_samples")
    by_task: dict[str, Path] = {}
    for file in files:
        other = by_task.setdefault(_task(file), file)
        if other != file:
            twice = f"{other.name} and {file.name}"
            raise ResultsError(f"two runs of one task: {twice}", where=str(path), fix="give the files of one run")
    for task, file in by_task.items():
        model = _model(file)
        for where, row in rows(file):
            yield _reply(row, task, model, where)


def _task(file: Path) -> str:
    m = _FILE.fullmatch(file.name)
    return m["task"] if m is not None else file.stem


def _model(file: Path) -> str:
    """The model as the run's results file names it, else the folder's name."""
    m = _FILE.fullmatch(file.name)
    results = file.with_name(f"{m['date']}_results.json") if m is not None and m["date"] else None
    if results is not None and results.is_file():
        try:
            data: object = json.loads(results.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultsError(f"cannot be read: {error}", where=str(results), fix="fetch it again") from None
        name = data.get("model_name") if isinstance(data, dict) else None
        if isinstance(name, str) and name:
            return name
    return file.resolve().parent.name


def _reply(row: Row, task: str, model: str, where: str) -> Reply:
    metrics = {key: cell for key, cell in row.items() if key not in _KNOWN}
    details: dict[str, object] = {}
    for cell in metrics.values():
        details |= cell if isinstance(cell, Mapping) else {}
    benchmark, rest = benchmark_named(task)
    prompt = _texts(row.get("input"), where)[0]
    target = row.get("target")
    category = next((values.plain(details[key]) for key in _CATEGORY if key in details), None) or rest or task
    doc_id, own_id = values.plain(row.get("doc_id")), values.plain(details.get("id"))
    if doc_id is None:
        raise ResultsError("no doc_id", where=where, fix="is this a samples file of lmms-eval?")
    if values.plain(target) is None:
        target = next((details[key] for key in _GOLD if key in details), None)
    choices = values.listed(prompt, target)
    if not choices and values.is_yes_no(target):
        choices = values.YES_NO
    texts = _texts(row.get("resps", row.get("filtered_resps")), where)
    return Reply(
        # Only BLINK's metric gives the benchmark's own ids; a bare number would not be unique over tasks.
        item_id=own_id.replace(" ", "_") if own_id and not own_id.isdigit() else f"{task}:{doc_id}",
        category=category,
        model=model,
        text=texts[0],
        gold=values.gold_letter(target, choices, where),
        released=_released(details, choices),
        choices=choices,
        n_images=images_of(benchmark, category),
        benchmark=benchmark,
        prompt=prompt,
        harness_correct=_verdict(metrics),
        tags={"replies": str(len(texts))} if len(texts) > 1 else {},
    )


def _texts(cell: object, where: str) -> list[str]:
    """The replies of a sample: a text, or lists around one or several."""
    if isinstance(cell, list):
        found = [text for inner in cell for text in _texts(inner, where)]
        if len(found) == 2 and found[1] in ("True", "False"):
            raise ResultsError(
                "log-likelihoods, no replies", where=where, fix="evaluate with a task of output type generate_until"
            )
        return found or [""]
    if isinstance(cell, bool):
        return [str(cell)]
    text = values.plain(cell)
    return [text or ""]


def _released(details: Mapping[str, object], choices: tuple[str, ...]) -> str | None:
    cell = next((details[key] for key in _READ if key in details), None)
    text = values.plain(cell)
    if text is None:
        return None
    if text.strip().casefold() in choices:
        return values.gold_letter(text, choices, "")
    return values.letter(text) or "Z"


def _verdict(metrics: Mapping[str, object]) -> bool | None:
    """What all metrics of a sample say, where they say right or wrong and agree."""
    words = set()
    for name, cell in metrics.items():
        if isinstance(cell, Mapping):
            cell = next((cell[key] for key in _VERDICTS if key in cell), None)
        elif not _METRIC.search(name):
            continue
        word = values.verdict(cell) if isinstance(cell, bool | int | float) else None
        words |= {word} if word is not None else set()
    return words.pop() if len(words) == 1 else None


RESULTS = ResultsFormat(
    name="lmms_eval",
    version=1,
    benchmark="",
    sniff=sniff,
    read=read,
    looks_for="*_samples_<task>.jsonl with the keys doc_id, target and resps or filtered_resps (lmms-eval)",
)
