"""BLINK (Fu et al. 2024): 14 kinds of perception, multiple choice, from a local copy of its dataset on the Hub.

The folder holds one folder a task (`Relative_Depth/val-00000-of-00001.parquet`, `Relative_Depth/test-…`). Item counts
and human accuracy are those of the paper's table; option texts are given where every item of a task has the same.
The answers of Relative_Reflectance were wrong until September 2025: use a copy made since.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from synth.errors import BenchmarkError
from synth.types import LETTERS, Benchmark, BenchmarkData, Item, PluginOptions, Progress, Skill, narrow


@dataclass(frozen=True)
class _Task:
    skill: Skill
    n_options: int
    images: int
    n: Mapping[str, int]
    human: float


def _task(skill: Skill, n_options: int, images: int, val: int, test: int, human: float) -> _Task:
    return _Task(skill, n_options, images, {"val": val, "test": test}, human)


TASKS = {
    "Visual_Similarity": _task(Skill.VISUAL_SIMILARITY, 2, 3, 135, 136, 0.9670),
    "Counting": _task(Skill.COUNTING, 4, 1, 120, 120, 0.9375),
    "Relative_Depth": _task(Skill.RELATIVE_DEPTH, 2, 1, 124, 124, 0.9919),
    "Jigsaw": _task(Skill.JIGSAW, 2, 3, 150, 150, 0.9900),
    "Art_Style": _task(Skill.ART_STYLE, 2, 3, 117, 117, 0.9530),
    "Functional_Correspondence": _task(Skill.FUNCTIONAL_CORRESPONDENCE, 4, 2, 130, 130, 0.8077),
    "Semantic_Correspondence": _task(Skill.SEMANTIC_CORRESPONDENCE, 4, 2, 139, 140, 0.9607),
    "Spatial_Relation": _task(Skill.SPATIAL_RELATION, 2, 1, 143, 143, 0.9825),
    "Object_Localization": _task(Skill.OBJECT_LOCALIZATION, 2, 1, 122, 125, 0.9800),
    "Visual_Correspondence": _task(Skill.VISUAL_CORRESPONDENCE, 4, 2, 172, 172, 0.9942),
    "Multi-view_Reasoning": _task(Skill.MULTI_VIEW, 2, 2, 133, 133, 0.9248),
    "Relative_Reflectance": _task(Skill.REFLECTANCE, 3, 1, 134, 134, 0.9514),
    "Forensic_Detection": _task(Skill.FORENSIC_DETECTION, 4, 4, 132, 132, 1.0),
    "IQ_Test": _task(Skill.IQ_TEST, 4, 1, 150, 150, 0.8000),
}
_POINTS = ("Point A", "Point B", "Point C", "Point D")
_TWO_IMAGES = ("the second image", "the third image")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "Visual_Similarity": _TWO_IMAGES,
    "Jigsaw": _TWO_IMAGES,
    "Art_Style": _TWO_IMAGES,
    "Relative_Depth": ("A is closer", "B is closer"),
    "Functional_Correspondence": _POINTS,
    "Semantic_Correspondence": _POINTS,
    "Visual_Correspondence": _POINTS,
    "Spatial_Relation": ("yes", "no"),
    "Object_Localization": ("Box A", "Box B"),
    "Multi-view_Reasoning": ("left", "right"),
    "Relative_Reflectance": ("A is darker", "B is darker", "About the same"),
    "Forensic_Detection": ("the first image", "the second image", "the third image", "the fourth image"),
}
_COLUMNS = ("idx", "question", "choices", "answer", "prompt", "image_1", "image_2", "image_3", "image_4")
_FIX = "fetch the whole dataset again: 14 folders, each with a val and a test parquet file"


class Options(PluginOptions):
    """Where the local copy is."""

    path: str
    """Folder with one folder a task."""
    splits: tuple[Literal["val", "test"], ...] = ("val", "test")
    """The answers of test are hidden; a guard still needs its pictures."""


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every item of the splits. Raises BenchmarkError where a task, a file, a column or an item is missing."""
    chosen = narrow(options, Options)
    folder = Path(chosen.path)
    if not folder.is_dir():
        raise BenchmarkError("no such folder", where=str(folder), fix=_FIX)
    if not chosen.splits:
        raise BenchmarkError("no split chosen", where=str(folder), fix="splits: [val, test]")
    items: list[Item] = []
    digest = hashlib.sha256()
    for done, category in enumerate(TASKS):
        for split in chosen.splits:
            files = _files(folder, category, split)
            for file in files:
                digest.update(hashlib.sha256(file.read_bytes()).digest())
            found = [_item(row, category, where) for row, where in _rows(files)]
            _check_count(found, category, split, folder)
            items += found
        if progress is not None:
            progress(done + 1, len(TASKS))
    return BenchmarkData(name="blink", revision=digest.hexdigest()[:16], items=tuple(_grouped(items)))


def _files(folder: Path, category: str, split: str) -> list[Path]:
    files = sorted(folder.glob(f"{category}/{split}-*.parquet"))
    if not files:
        raise BenchmarkError(f"no {split}-*.parquet of {category}", where=str(folder / category), fix=_FIX)
    shards = re.search(r"-of-(\d+)\.parquet$", files[0].name)
    if shards is not None and len(files) != int(shards[1]):
        found = f"{len(files)} of {int(shards[1])} files"
        raise BenchmarkError(f"{found} of {category} {split}", where=str(folder / category), fix=_FIX)
    return files


def _rows(files: list[Path]) -> Iterator[tuple[Mapping[str, object], str]]:
    import pyarrow
    import pyarrow.parquet

    for file in files:
        try:
            table = pyarrow.parquet.read_table(file)
            missing = [name for name in _COLUMNS if name not in table.column_names]
            if missing:
                raise BenchmarkError(f"no column {', '.join(missing)}", where=str(file), fix=_FIX)
            rows: list[Mapping[str, object]] = table.select(list(_COLUMNS)).to_pylist()
        except (OSError, pyarrow.ArrowInvalid) as error:
            raise BenchmarkError(f"not a parquet file that can be read: {error}", where=str(file), fix=_FIX) from None
        for number, row in enumerate(rows):
            yield row, f"{file}: row {number}"


def _item(row: Mapping[str, object], category: str, where: str) -> Item:
    task = TASKS[category]
    images = tuple(_images(row))
    if len(images) < task.images:
        raise BenchmarkError(f"{len(images)} of {task.images} images", where=where, fix=_FIX)
    choices = row["choices"]
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        raise BenchmarkError(f"expected a list of options, found {choices!r}", where=where, fix=_FIX)
    answer = str(row["answer"]).strip("() ")
    if answer != "hidden" and answer not in LETTERS[: len(choices)]:
        raise BenchmarkError(f"the answer {row['answer']!r} is none of {len(choices)} options", where=where, fix=_FIX)
    return Item(
        item_id=str(row["idx"]),
        category=category,
        skill=task.skill,
        question=str(row["question"]),
        choices=tuple(str(choice) for choice in choices),
        answer=None if answer == "hidden" else answer,
        prompt=str(row["prompt"]),
        images=images,
    )


def _images(row: Mapping[str, object]) -> Iterator[bytes]:
    for name in ("image_1", "image_2", "image_3", "image_4"):
        image = row[name]
        data = image.get("bytes") if isinstance(image, dict) else None
        if isinstance(data, bytes) and data:
            yield data


def _check_count(found: list[Item], category: str, split: str, folder: Path) -> None:
    ids = {item.item_id for item in found}
    expected = TASKS[category].n[split]
    if len(ids) < expected:
        raise BenchmarkError(f"{len(ids)} of {expected} items of {category} {split}", where=str(folder), fix=_FIX)
    if len(ids) < len(found):
        raise BenchmarkError(f"{len(found) - len(ids)} items of {category} {split} twice", where=str(folder), fix=_FIX)


def _grouped(items: list[Item]) -> Iterator[Item]:
    """Items that share a picture, directly or through a third one, form one group."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    pictures = [[hashlib.sha256(data).hexdigest()[:16] for data in item.images] for item in items]
    for names in pictures:
        for name in names[1:]:
            parent[root(name)] = root(names[0])
    for item, names in zip(items, pictures, strict=True):
        yield replace(item, group=root(names[0]))


BENCHMARK = Benchmark(
    name="blink",
    version=1,
    options=Options,
    licence="Apache-2.0 (the pictures keep the terms of their sources)",
    skills={name: task.skill for name, task in TASKS.items()},
    human={name: task.human for name, task in TASKS.items()},
    n_options={name: task.n_options for name, task in TASKS.items()},
    choices=CHOICES,
    load=load,
)
