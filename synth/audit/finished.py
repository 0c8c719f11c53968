"""`s2p audit DATASET`: a finished dataset held against its own numbers, against truth, and against blind solvers."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from pathlib import Path

from synth.audit.leaks import shortcuts_json, with_allowed
from synth.audit.run import AuditResult, truth_scene
from synth.audit.shortcuts import find_shortcuts
from synth.audit.truth import Graded, grade, summarise
from synth.audit.wrong import Wrong, truth_facts
from synth.dataset.asked import asked_rows
from synth.dataset.explain import provenance_of
from synth.dataset.shards import read_rows
from synth.errors import GateFailed, ImageError
from synth.images import decode
from synth.plugins import SOURCES, TASKS, load
from synth.types import QA, Drop, Frame, JsonValue, Mark, Panel, PluginOptions, Progress, Scene, Skill, SourceItem

_COLUMNS = (
    *("qa_id", "question", "choices", "answer", "task", "skill", "difficulty", "stratum"),
    *("source_name", "source_group", "image_ids", "provenance"),
)
_SHOWN = 20


class _Truths:
    """Photos of a folder with truth, by the sha256 of their file; the last one is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._source = load(SOURCES, "folder")
        self._options: PluginOptions | None = None
        self._items: dict[str, SourceItem] = {}
        if folder is not None:
            self._options = self._source.options.model_validate({"path": folder})
            self._items = {item.fingerprint: item for item in self._source.list(self._options)}
        self._last: Scene | str = ""
        self._id = ""

    def scene(self, image_id: str) -> Scene | str:
        """The photo as its truth tells it, or why there is none."""
        if image_id != self._id:
            self._id, self._last = image_id, self._read(image_id)
        return self._last

    def _read(self, image_id: str) -> Scene | str:
        if self._options is None or image_id not in self._items:
            return "no_truth"
        try:
            view = self._source.load(self._items[image_id], self._options)
            return truth_scene(Frame(view=view, rgb=decode(view.data))) if view.truth is not None else "no_truth"
        except ImageError as error:
            return error.reason


def audit_dataset(dataset: Path, truth: Path | None = None, progress: Progress | None = None) -> AuditResult:
    """Recompute every answer, grade those whose photo lies with its truth in the folder `truth`, look for shortcuts.

    `summary["recomputed"]` counts the answers that follow from their stored numbers. Raises DatasetError, SourceError.
    """
    truths = _Truths(truth)
    graded: list[Graded] = []
    facts: dict[str, tuple[tuple[str, str], ...]] = {}
    drops: list[Drop] = []
    differing: list[str] = []
    pairs: list[QA] = []
    rows = sorted(read_rows(dataset, _COLUMNS), key=lambda row: (str(row["image_ids"]), str(row["qa_id"])))
    for done, row in enumerate(rows, 1):
        qa = qa_of(row)
        pairs.append(qa)
        task = load(TASKS, qa.task)
        if task.recompute(qa.provenance) != qa.answer:
            differing.append(qa.qa_id)
        scene = truths.scene(qa.image_id)
        name = str(row["source_name"])
        if isinstance(scene, Scene) and any(panel.image == "second" for panel in qa.panels):
            scene = "second_photo"  # its truth lies between two photos, and a row names only the first
        if isinstance(scene, str):
            drops.append(Drop(stage="audit", task=qa.task, image=name, reason=scene, example=f"{qa.qa_id} on {name}"))
        else:
            verdict = grade(qa, scene.view, scene, task)
            group = str(row["source_group"])
            one = Graded(qa=qa, image=name, domain=scene.view.domain, grade=verdict, group=group)
            graded.append(one)
            if verdict == "wrong":
                facts[qa.qa_id] = tuple(truth_facts(qa, scene))
        if progress is not None:
            progress(done, len(rows))
    pictures = _pictures(dataset, facts) if facts else {}
    wrong = tuple(
        Wrong(graded=one, pictures=pictures[one.qa.qa_id], truth=facts[one.qa.qa_id])
        for one in graded
        if one.grade == "wrong"
    )
    tasks = sorted({qa.task for qa in pairs})
    n_images = len({qa.image_id for qa in pairs})
    summary: dict[str, JsonValue] = {
        **summarise(graded, tasks, n_images, pairs),
        "recomputed": {"n": len(pairs), "agree": len(pairs) - len(differing), "differ": differing[:_SHOWN]},
        "shortcuts": with_allowed(shortcuts_json(find_shortcuts(asked_rows(dataset))), _allowed(dataset)),
    }
    return AuditResult(graded=tuple(graded), drops=tuple(drops), n_images=n_images, summary=summary, wrong=wrong)


def check_recomputed(summary: Mapping[str, JsonValue], dataset: Path) -> None:
    """Raise GateFailed where an answer does not follow from its stored numbers."""
    found = summary["recomputed"]
    if isinstance(found, Mapping) and found["agree"] != found["n"]:
        raise GateFailed(
            f"only {found['agree']} of {found['n']} answers follow from their stored numbers: {found['differ']}",
            where=str(dataset),
            fix="see `s2p explain DATASET ID`; do not train on these rows",
        )


def qa_of(row: Mapping[str, JsonValue]) -> QA:
    """The question of a dataset row, as its task made it."""
    stored = json.loads(str(row["provenance"]))
    choices, ids = row["choices"], row["image_ids"]
    panels = tuple(
        Panel(
            image=panel["image"],
            number=panel.get("number", 0),
            marks=tuple(Mark(label=mark["label"], x=mark["x"], y=mark["y"]) for mark in panel["marks"]),
        )
        for panel in stored["panels"]
    )
    return QA(
        qa_id=str(row["qa_id"]),
        task=str(row["task"]),
        skill=Skill(str(row["skill"])),
        image_id=str(ids[0]) if isinstance(ids, list) and ids else "",
        question=str(row["question"]),
        choices=tuple(str(choice) for choice in choices) if isinstance(choices, list) else (),
        answer=str(row["answer"]),
        panels=panels,
        difficulty=float(str(row["difficulty"])),
        stratum=str(row["stratum"]),
        provenance=provenance_of(dict(row)),
    )


def _pictures(dataset: Path, ids: Container[str]) -> dict[str, tuple[bytes, ...]]:
    """The encoded pictures of some rows."""
    found: dict[str, tuple[bytes, ...]] = {}
    for row in read_rows(dataset, ("qa_id", "images")):
        images = row["images"]
        if row["qa_id"] in ids and isinstance(images, list):
            files = (image["bytes"] for image in images if isinstance(image, Mapping))
            found[str(row["qa_id"])] = tuple(data for data in files if isinstance(data, bytes))
    return found


def _allowed(dataset: Path) -> tuple[str, ...]:
    """Cues that the run which made the dataset was allowed."""
    path = dataset / "manifest.json"
    if not path.exists():
        return ()
    config = json.loads(path.read_text(encoding="utf-8")).get("config", {})
    return tuple(config.get("output", {}).get("allow_shortcuts", ()))
