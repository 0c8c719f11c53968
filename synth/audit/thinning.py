"""Leaves out pairs that could be answered without looking, so that what stays cannot.

Strata make one cue even (lower is nearer). Marks lean on others as well: in a room what is near the picture's centre is
far away, whatever its height; and what is large is marked more often than it is a wrong option. So a blind solver
(`synth.audit.shortcuts`) learns from all candidates of a skill how likely each option is right, p_1 … p_m, and a pair
whose right option has p is kept with probability min(p_1 … p_m) / p. Among the kept every option is then equally likely
to be right, for all that the solver can see: what a propensity score does in a trial (Rosenbaum and Rubin 1983,
Biometrika 70). Nothing is left out where the solver finds nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from synth.audit.cues import CUES, Asked, Floats
from synth.audit.shortcuts import FOLDS, SLACK, fold_of_each, weigh
from synth.types import Drop

MIN_PAIRS = 100
"""With fewer candidates of a skill the solver's odds are noise."""
_Z = 2.33
"""Standard errors above chance (one-sided 1 %) from which the solver has found something."""
_BALANCED_ELSEWHERE = frozenset({"letter", "mention", "mark_colour"})
"""`choose` makes every letter as frequent as every other one, and these follow."""


@dataclass(frozen=True, kw_only=True)
class Thinned:
    """Which candidates are too easily guessed."""

    left_out: Mapping[str, str] = field(default_factory=dict)
    """Their qa_id -> skill."""
    drops: tuple[Drop, ...] = ()

    def without(self, skills: Collection[str]) -> Thinned:
        """The same, and nothing left out of these skills."""
        left_out = {qa_id: skill for qa_id, skill in self.left_out.items() if skill not in skills}
        return Thinned(left_out=left_out, drops=tuple(drop for drop in self.drops if drop.task not in skills))


def thin(pairs: Sequence[Asked], seed: int) -> Thinned:
    """Candidates to leave out. Depends on the candidates and the seed alone, not on their order."""
    left_out: dict[str, str] = {}
    drops: list[Drop] = []
    for task, skill in sorted({(pair.task, pair.skill) for pair in pairs}):
        mine = sorted((p for p in pairs if (p.task, p.skill) == (task, skill)), key=lambda pair: pair.qa_id)
        lost = list(_guessable(mine, seed))
        if lost:
            left_out |= {pair.qa_id: skill for pair in lost}
            example = f"{lost[0].qa_id}: {lost[0].question} {lost[0].choices[lost[0].answer]}"
            drops.append(
                Drop(stage="balance", task=skill, image="", reason="guessable", count=len(lost), example=example)
            )
    return Thinned(left_out=left_out, drops=tuple(drops))


def _guessable(pairs: Sequence[Asked], seed: int) -> Iterator[Asked]:
    """The pairs that fall."""
    if len(pairs) < MIN_PAIRS or len({pair.group for pair in pairs}) < FOLDS:
        return
    columns = _columns(pairs)
    if columns is None:
        return
    scores = weigh(pairs, fold_of_each(pairs), columns)
    answers = np.array([pair.answer for pair in pairs])
    chance = float(np.mean([1 / len(pair.options) for pair in pairs]))
    gain = float((scores.argmax(axis=1) == answers).mean()) - chance
    # What lies where is the same in both members of a contrast pair: they tell the solver one thing, and share a fate.
    apart = len({pair.twin or pair.qa_id for pair in pairs})
    if gain <= max(SLACK / 2, _Z * np.sqrt(chance * (1 - chance) / apart)):
        return
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    right = odds[np.arange(len(pairs)), answers]
    least = np.where(np.isfinite(scores), odds, np.inf).min(axis=1)
    keep: dict[str, float] = {}
    for pair, share in zip(pairs, least / right, strict=True):
        keep[pair.twin or pair.qa_id] = min(float(share), keep.get(pair.twin or pair.qa_id, 1.0))
    for pair in pairs:
        if _uniform(pair.twin or pair.qa_id, seed) >= keep[pair.twin or pair.qa_id]:
            yield pair


def _columns(pairs: Sequence[Asked]) -> Floats | None:
    found = [
        columns
        for cue in CUES
        if cue.columns is not None
        and cue.name not in _BALANCED_ELSEWHERE
        and pairs[0].skill not in cue.is_the_question
        and (columns := cue.columns(pairs)) is not None
    ]
    return np.concatenate(found, axis=2) if found else None


def _uniform(qa_id: str, seed: int) -> float:
    """A number in [0, 1) of the pair's own."""
    raw = hashlib.blake2b(f"{seed}|thin|{qa_id}".encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") / 2.0**64
