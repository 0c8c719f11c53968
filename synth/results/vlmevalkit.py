"""VLMEvalKit's predictions and judged results: `<model>_<dataset>[_<judge>_result].xlsx`, `.tsv` or `.json`.

A row has the dataset's columns without the picture (`index`, `question`, `A` …, `answer`, `category`), `prediction`,
and in a judged file `hit` and `log`, or `extracted` and `score` (yes/no sets, `…_auxmatch`). Where a folder holds both,
the rows are those of the predictions and the judged file gives `harness_correct`. In a circular set the rotations of
one question have its index plus a multiple of 10^6, and the harness judges them together (tag `rotations_right`).
Source: open-compass/VLMEvalKit, vlmeval/dataset. Its `.pkl` files are never opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from synth.contracts import ResultsFormat
from synth.errors import ResultsError
from synth.results import _values as values
from synth.results._datasets import benchmark_named, images_of
from synth.results._tables import CELL_LIMIT, Row, columns, rows
from synth.types import LETTERS, Reply

_SUFFIXES = (".xlsx", ".tsv", ".json")
_ROTATION = 1_000_000
_KNOWN = re.compile(
    r"(?P<model>.+)_(?P<dataset>BLINK|CV-?Bench(?:-[23]D)?|MMVP|POPE|HallusionBench|MMStar|RealWorldQA"
    r"|VSI-?Bench(?:_\d+frame|_[\d.]+fps)?|MedBLINK)(?P<circular>_circular)?(?:_(?P<judge>.+))?",
    re.IGNORECASE,
)
_JUDGED = re.compile(r"(?P<rest>.+?)_(?:(?P<judge>exact_matching|[^_]+)_result|(?P<match>auxmatch))")


@dataclass(frozen=True)
class _Name:
    """What a file's name says."""

    model: str
    dataset: str
    judge: str
    """ "" for plain predictions."""


def _name(file: Path) -> _Name:
    m = _KNOWN.fullmatch(file.stem)
    if m is not None:
        return _Name(m["model"], m["dataset"] + (m["circular"] or ""), (m["judge"] or "").removesuffix("_result"))
    judged = _JUDGED.fullmatch(file.stem)
    stem = judged["rest"] if judged is not None else file.stem
    judge = (judged["judge"] or judged["match"]) if judged is not None else ""
    # Results lie in <model>/ or <model>/T<date>/: the folder tells where an unknown set's name begins.
    for folder in (file.parent, file.parent.parent):
        if folder.name and stem.startswith(folder.name + "_"):
            return _Name(folder.name, stem[len(folder.name) + 1 :], judge)
    model, _, dataset = stem.rpartition("_")
    return _Name(model or stem, dataset if model else "", judge)


def _is_table(file: Path) -> bool:
    if file.suffix.lower() not in _SUFFIXES:
        return False
    return {"index", "prediction"} <= {name.lower() for name in columns(file)}


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if _is_table(path) else []
    # Links one level up point to the newest run's files; a file counts once.
    found = {file.resolve(): file for file in sorted(path.iterdir()) if _is_table(file)}
    return list(found.values())


def sniff(path: Path) -> bool:
    """True for a table with index and prediction, or a folder with one."""
    return bool(_files(path))


def read(path: Path) -> Iterator[Reply]:
    """Every row of every prediction once. Raises ResultsError where a set comes twice, with file and row elsewhere."""
    sets: dict[tuple[str, str], list[tuple[str, Path]]] = {}
    for file in _files(path):
        name = _name(file)
        sets.setdefault((name.model, name.dataset), []).append((name.judge, file))
    if not sets:
        raise ResultsError("no table with index and prediction", where=str(path), fix="give .xlsx, .tsv or .json")
    for (model, dataset), files in sets.items():
        # The cheapest judge knows least: exact matching speaks only where no other file does.
        judged = sorted(pair for pair in files if pair[0])
        judged.sort(key=lambda pair: pair[0] == "exact_matching")
        plain = [file for judge, file in files if not judge]
        if len(plain) > 1:
            twice = ", ".join(file.name for file in plain)
            raise ResultsError(f"{model} on {dataset} comes twice: {twice}", where=str(path), fix="give one of them")
        main = plain[0] if plain else judged[0][1]
        verdicts = judged[0][1] if judged and judged[0][1] != main else None
        yield from _read_set(main, _Name(model, dataset, ""), verdicts)


def _read_set(file: Path, name: _Name, judged: Path | None) -> Iterator[Reply]:
    table = [(where, _lowered(row)) for where, row in rows(file)]
    ids = [_index(row, where) for where, row in table]
    known = set(ids)
    rotated = (int(i) % _ROTATION for i in ids if i.isdigit() and int(i) >= _ROTATION)
    circular = name.dataset.lower().endswith("_circular") or any(str(base) in known for base in rotated)
    judgements = table if judged is None else [(where, _lowered(row)) for where, row in rows(judged)]
    words = {_index(row, where): values.verdict(row.get("hit", row.get("score"))) for where, row in judgements}
    verdicts = {i: word for i, word in words.items() if word is not None}
    for (where, row), i in zip(table, ids, strict=True):
        reply = _reply(row, i, name, where, cut=file.suffix.lower() == ".xlsx")
        yield _judged(reply, i, name.dataset, verdicts, circular)


def _lowered(row: Row) -> dict[str, object]:
    return {key if len(key) == 1 else key.lower(): cell for key, cell in row.items()}


def _index(row: Mapping[str, object], where: str) -> str:
    index = values.plain(row.get("index"))
    if index is None:
        raise ResultsError("no index", where=where, fix="is the file whole?")
    return index


def _judged(reply: Reply, index: str, dataset: str, verdicts: Mapping[str, bool], circular: bool) -> Reply:
    if not circular or not index.isdigit():
        return replace(reply, harness_correct=verdicts.get(index))
    rotation, base = divmod(int(index), _ROTATION)
    tags = {**reply.tags, "rotation": str(rotation)}
    if str(base) in verdicts:
        tags["rotations_right"] = "yes" if verdicts[str(base)] else "no"
    return replace(reply, group=f"{dataset}:{base}", tags=tags)


def _reply(row: Mapping[str, object], index: str, name: _Name, where: str, *, cut: bool) -> Reply:
    benchmark, _ = benchmark_named(name.dataset)
    choices = _choices(row)
    if not choices and values.is_yes_no(row.get("answer")):
        choices = values.YES_NO
    told = (values.plain(row.get(key)) for key in ("category", "task", "l2-category"))
    category = next(filter(None, told), name.dataset)
    text = values.plain(row.get("prediction")) or ""
    # Judged files went through str(), which writes an empty cell as "nan".
    text = "" if text == "nan" and {"hit", "score"} & row.keys() else text
    thinking = values.plain(row.get("thinking")) or ""
    extracted = values.plain(row.get("extracted"))
    log = values.plain(row.get("log")) or ""
    return Reply(
        item_id=f"{name.dataset}:{index}",
        category=category,
        model=name.model,
        text=text,
        gold=values.gold_letter(row.get("answer"), choices, where),
        released=_extracted(extracted, choices),
        choices=choices,
        n_images=images_of(benchmark, category),
        benchmark=benchmark,
        question=values.plain(row.get("question")) or "",
        truncated=(cut and len(text) >= CELL_LIMIT) or (not text and bool(thinking)),
        tags={"judge_failed": "yes"} if log.lower().startswith("failed") else {},
    )


def _choices(row: Mapping[str, object]) -> tuple[str, ...]:
    texts = [values.plain(row.get(key)) for key in LETTERS]
    while texts and texts[-1] is None:
        texts.pop()
    return tuple(text or "" for text in texts)


def _extracted(cell: str | None, choices: Sequence[str]) -> str | None:
    if cell is None:
        return None
    folded = [choice.casefold() for choice in choices]
    word = cell.strip().casefold()
    return LETTERS[folded.index(word)] if word in folded else (values.letter(cell) or "Z")


RESULTS = ResultsFormat(
    name="vlmevalkit",
    version=1,
    benchmark="",
    sniff=sniff,
    read=read,
    looks_for="a .xlsx, .tsv or .json table with the columns index and prediction (VLMEvalKit)",
)
