"""Every mark must be visible where it stands, apart from the others, and be the one that the text speaks of."""

from __future__ import annotations

import re

import numpy as np

from synth.contracts import Check, Task
from synth.marks import OUTLINE_RADIUS, mark_scale
from synth.types import QA, Mark, Panel, Rgb, Scene, Verdict

_NAMED = re.compile(r"\b(?:[Mm]arks?|[Pp]oints?|[Ll]etter|[Pp]laces?) ([A-Z]|REF)\b(?:(?:,| and| or) ([A-Z])\b)*")
_APART = 2.2
"""Least distance of two marks, in radii of a drawn ring: rings do not touch."""


def judge(qa: QA, scene: Scene, task: Task) -> Verdict:
    """Keeps a QA whose marks can be drawn and fit its words."""
    for panel in qa.panels:
        rgb = scene.picture(panel)
        if rgb is None:
            return Verdict(keep=False, reason="no_pair", detail="a mark in a second picture that is not there")
        fault = _fault(panel, rgb)
        if fault is not None:
            return fault
    labels = {mark.label for panel in qa.panels for mark in panel.marks}
    missing = {name for text in (qa.question, *qa.choices) for name in _names(text)} - labels
    if missing:
        words = f"the text speaks of {sorted(missing)}, marks are {sorted(labels)}"
        return Verdict(keep=False, reason="unmarked", detail=words)
    answers = set(qa.provenance.options)
    if labels and answers & labels and not answers <= labels:
        return Verdict(keep=False, reason="unmarked", detail=f"options {sorted(answers)}, marks {sorted(labels)}")
    return Verdict(keep=True)


def _names(text: str) -> list[str]:
    return [name for found in _NAMED.finditer(text) for name in found.groups() if name]


def _fault(panel: Panel, rgb: Rgb) -> Verdict | None:
    height, width = rgb.shape[:2]
    ring = OUTLINE_RADIUS * mark_scale(width, height)
    labels = [mark.label for mark in panel.marks]
    if len(set(labels)) < len(labels):
        return Verdict(keep=False, reason="labels", detail=f"two marks of one label: {labels}")
    for mark in panel.marks:
        if not (ring <= mark.x <= width - ring and ring <= mark.y <= height - ring):
            where = f"{mark.label} at ({mark.x:.0f}, {mark.y:.0f}) in {width}x{height}"
            return Verdict(keep=False, reason="border", detail=where)
    for i, mark in enumerate(panel.marks):
        near = [other for other in panel.marks[:i] if _distance(mark, other) < _APART * ring]
        if near:
            return Verdict(keep=False, reason="too_close", detail=f"{mark.label} and {near[0].label}")
    return None


def _distance(a: Mark, b: Mark) -> float:
    return float(np.hypot(a.x - b.x, a.y - b.y))


CHECK = Check(name="marks", version=1, judge=judge)
