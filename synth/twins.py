"""Contrast pairs: two questions about one photo in the same words, with two pictures and opposite answers.

In the second picture the marks A and B have changed places; nothing else differs. Whoever answers from the words, or
from a liking for one letter, gets one of the two right, never both. Both members are ordinary questions: each has its
own id, and its own answer can be recomputed from its own numbers. What joins them is the measure `twin`, the qa_id of
the first one: it stands in the provenance of the rows, so a dataset without contrast pairs has no column that is empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from synth.contracts import Task
from synth.tasks._asking import qa_id_of
from synth.types import QA, JsonValue, Panel

KEY = "twin"
_OTHER = {"A": "B", "B": "A"}


def twins_of(qa: QA, task: Task) -> tuple[QA, QA] | None:
    """The question and its twin, both with the key; None where the exchange of the letters has no opposite answer."""
    if qa.skill not in task.twins:
        return None
    panels = tuple(_exchanged(panel) for panel in qa.panels)
    measures = {name: _relabelled(value) for name, value in qa.provenance.measures.items()}
    provenance = replace(qa.provenance, measures={**measures, KEY: qa.qa_id})
    answer = task.recompute(provenance)
    if not answer or answer == qa.answer or panels == qa.panels:
        return None
    identity = qa_id_of((task.name, task.version), qa.image_id, qa.question, qa.choices, panels)
    first = replace(qa, provenance=replace(qa.provenance, measures={**qa.provenance.measures, KEY: qa.qa_id}))
    return first, replace(qa, qa_id=identity, answer=answer, panels=panels, provenance=provenance)


def twin_key(measures: Mapping[str, JsonValue]) -> str:
    """What joins the members of a contrast pair, from the stored measures; "" for a question that stands alone."""
    return str(measures.get(KEY, ""))


def is_drawn(qa_id: str, share: float, seed: int) -> bool:
    """Whether this question gets a twin: of all questions share / (2 - share), so that `share` of the pairs are twins.

    Depends on the id and the seed alone.
    """
    raw = hashlib.blake2b(f"{seed}|twin|{qa_id}".encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") / 2.0**64 < share / (2 - share)


def _exchanged(panel: Panel) -> Panel:
    places = {mark.label: (mark.x, mark.y) for mark in panel.marks}
    if places.keys() != _OTHER.keys():
        return panel
    marks = ((mark, places[_OTHER[mark.label]]) for mark in panel.marks)
    return replace(panel, marks=tuple(replace(mark, x=x, y=y) for mark, (x, y) in marks))


def _relabelled(value: JsonValue) -> JsonValue:
    """The measures of the exchanged marks: what was stored under A stands under B, however deep."""
    if isinstance(value, Mapping):
        inner = {name: _relabelled(item) for name, item in value.items()}
        return {name: inner[_OTHER[name]] for name in inner} if inner.keys() == _OTHER.keys() else inner
    if isinstance(value, list | tuple):
        return [_relabelled(item) for item in value]
    return value
