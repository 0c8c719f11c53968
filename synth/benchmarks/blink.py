"""BLINK (Fu et al. 2024): 14 kinds of perception, multiple choice.

Read from a copy of its dataset on the Hub, one folder a task (`Relative_Depth/val-00000-of-00001.parquet`,
`Relative_Depth/test-…`), or from VLMEvalKit's `BLINK.tsv`, which holds val alone. Item counts and human accuracy are
those of the paper's table; option texts are given where every item of a task has the same. The answers of
Relative_Reflectance were wrong until September 2025 (zeyofu/BLINK_Benchmark#13), in `BLINK.tsv` until May 2026: use a
copy made since. The old table is refused; `s2p diagnose` knows the old key in results.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from synth.benchmarks._choices import letter_of
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Pictures, Row, TableOptions, fetch, files_of, locate, open_table, read_rows
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.errors import BenchmarkError
from synth.files import sha256_file
from synth.types import Item, PluginOptions, Progress, Skill, narrow


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
_IMAGES = ("image_1", "image_2", "image_3", "image_4")
_TSV_OLD = "3b6649b6a662184ea046908e5506260e"
_TSV_NEW = "d5e8af148b10ac69f535ff7b23f3f989"


class Options(TableOptions):
    """Where the copy is."""

    repo: str = "BLINK-Benchmark/BLINK"
    splits: tuple[Literal["val", "test"], ...] = ("val", "test")
    """The answers of test are hidden; a guard still needs its pictures."""


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every item of the splits. Raises BenchmarkError where a task, a file, a column or an item is missing."""
    chosen = narrow(options, Options)
    root = locate(chosen, "blink")
    if not chosen.splits:
        raise BenchmarkError("no split chosen", where=str(root), fix="splits: [val, test]")
    table = root / "BLINK.tsv" if (root / "BLINK.tsv").is_file() else root
    return _tsv(table, chosen, progress) if table.is_file() else _folders(root, chosen, progress)


def _folders(root: Path, chosen: Options, progress: Progress | None) -> BenchmarkData:
    harvest = Harvest("blink", str(root))
    digest = hashlib.sha256()
    counts: dict[str, tuple[int, int]] = {}
    for done, (category, task) in enumerate(TASKS.items(), start=1):
        for split in chosen.splits:
            files = files_of(root / category, [f"{split}-*.parquet"])
            digest.update("".join(sha256_file(file) for file in files).encode())
            found = [_item(row, category) for row in read_rows(files)]
            counts[f"items of {category} {split}"] = (len(found), task.n[split])
            harvest.items += found
        if progress is not None:
            progress(done, len(TASKS))
    version = "" if set(chosen.splits) == {"val", "test"} else "+".join(chosen.splits)
    return harvest.data(digest.hexdigest()[:16], counts, chosen.allow_partial, version)


def _tsv(file: Path, chosen: Options, progress: Progress | None) -> BenchmarkData:
    """VLMEvalKit's table. Its prompt is another one than BLINK's; here the options are lettered as in BLINK."""
    if chosen.splits != ("val",):
        raise BenchmarkError(
            "this table holds val alone, and a guard needs the pictures of test too",
            where=str(file),
            fix=f"{fetch(chosen.model_copy(update={'path': ''}), 'blink')}; or set splits: [val] to evaluate only",
        )
    with file.open("rb") as handle:
        md5 = hashlib.file_digest(handle, "md5").hexdigest()
    if md5 == _TSV_OLD:
        raise BenchmarkError(
            "this copy holds the wrong answers of Relative_Reflectance that were replaced in May 2026",
            where=str(file),
            fix=f"fetch BLINK.tsv again: its md5 must be {_TSV_NEW}",
        )
    table = open_table(chosen.model_copy(update={"path": str(file)}), "blink", ())
    harvest = Harvest("blink", str(file))
    harvest.items += [_tsv_item(row, table.pictures) for row in table.each(progress)]
    found = Counter(item.category for item in harvest.items)
    counts = {f"items of {name} val": (found[name], task.n["val"]) for name, task in TASKS.items()}
    # A table that somebody wrote again may hold either key, so its numbers must not pass for the known one's.
    version = "val" if md5 == _TSV_NEW else "val-unknown_key"
    return harvest.data(table.digest(), counts, chosen.allow_partial, version)


def _item(row: Row, category: str) -> Item:
    choices = row.texts("choices")
    return _checked(
        Item(
            item_id=row.need("idx"),
            category=category,
            skill=TASKS[category].skill,
            question=row.need("question"),
            choices=choices,
            answer=letter_of(row.need("answer"), choices, row.where),
            prompt=row.need("prompt"),
            images=Pictures(()).of(row, *_IMAGES),
        ),
        row.where,
    )


def _tsv_item(row: Row, pictures: Pictures) -> Item:
    category = row.among("category", TASKS)
    question, choices = row.need("question"), row.lettered()
    return _checked(
        Item(
            item_id=row.need("index"),
            category=category,
            skill=TASKS[category].skill,
            question=question,
            choices=choices,
            answer=letter_of(row.need("answer"), choices, row.where),
            prompt=item_prompt(f"{question}\nSelect from the following choices.", choices),
            images=pictures.of(row, "image"),
        ),
        row.where,
    )


def _checked(item: Item, where: str) -> Item:
    expected = TASKS[item.category].images
    if len(item.images) < expected:
        raise BenchmarkError(f"{len(item.images)} of {expected} images", where=where, fix="fetch the file again")
    return item


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
