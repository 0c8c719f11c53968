"""The stored numbers, after a trip through JSON, must give the stored answer by the task's second derivation."""

from __future__ import annotations

import json

from synth.contracts import Check, Task
from synth.types import QA, Provenance, Scene, Verdict


def judge(qa: QA, scene: Scene, task: Task) -> Verdict:
    """Keeps a QA whose answer its own provenance gives."""
    if (qa.provenance.task, qa.provenance.version) != (task.name, task.version):
        made_by = f"{qa.provenance.task} {qa.provenance.version}"
        return Verdict(keep=False, reason="other_task", detail=f"made by {made_by}, asked {task.name} {task.version}")
    if qa.provenance.options and len(qa.provenance.options) != len(qa.choices):
        return Verdict(keep=False, reason="options", detail="as many options as choices are expected")
    try:
        answer = task.recompute(stored(qa.provenance))
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        return Verdict(keep=False, reason="incomplete", detail=f"{type(error).__name__}: {error}")
    if answer != qa.answer:
        said = answer or "undecidable"
        return Verdict(keep=False, reason="differs", detail=f"answer {qa.answer}, the numbers say {said}")
    return Verdict(keep=True)


def stored(provenance: Provenance) -> Provenance:
    """The provenance as it comes back from a dataset row: lists for tuples, numbers as JSON prints them."""
    fields = json.loads(json.dumps(provenance.plain(), allow_nan=False))
    return Provenance(
        task=fields["task"],
        version=fields["version"],
        wording=fields["wording"],
        backends=tuple(fields["backends"]),
        options=tuple(fields["options"]),
        measures=fields["measures"],
    )


CHECK = Check(name="recompute", version=1, judge=judge)
