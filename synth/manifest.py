"""The manifest of a finished run: derived from the shards' notes and the assembled rows, never kept by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from synth import __version__
from synth.config import dump
from synth.dataset.assemble import Assembled, letters_and_strata
from synth.dataset.shards import ShardNote
from synth.findings import Plan, Quota
from synth.recipe import Recipe
from synth.types import Drop, JsonValue


def build_manifest(
    recipe: Recipe, plan: Plan, run: str, notes: Sequence[ShardNote], assembled: Assembled
) -> dict[str, JsonValue]:
    """Everything but the guard's section and the run's time."""
    fates = Counter(fate for note in notes for fate in note.fates.values())
    counts = add_counts(notes)
    letters, strata = letters_and_strata(assembled.kept)
    by_task = Counter((row.task, row.skill) for row in assembled.kept)
    quotas: list[JsonValue] = [
        {**quota_row(quota), "made": by_task[(quota.task, str(quota.skill))]} for quota in plan.quotas
    ]
    candidates = {k.split(":", 1)[1]: int(v) for k, v in sorted(counts.items()) if k.startswith("candidates:")}
    n_images = sum(fates.values())
    return {
        "schema": "s2p-manifest/1",
        "run": run,
        "name": recipe.name,
        "code_version": __version__,
        "config": dump(recipe),
        "images": {"listed": n_images, "used": fates["used"], "dropped": n_images - fates["used"]},
        "pairs": {
            "candidates": sum(candidates.values()),
            "candidates_by_skill": dict(candidates),
            "kept": len(assembled.kept),
            "by_skill": dict(sorted(Counter(row.skill for row in assembled.kept).items())),
            "by_split": dict(assembled.splits),
            "letters": letters,
            "strata": strata,
            "twins": dict(sorted(Counter(row.skill for row in assembled.kept if row.twin).items())),
        },
        "quotas": quotas,
        "drops": drop_rows(all_drops(notes, assembled)),
        "perception": {k: round(v, 2) for k, v in sorted(counts.items()) if not k.startswith("candidates:")},
        "files": list(assembled.files),
    }


def quota_row(quota: Quota) -> dict[str, JsonValue]:
    """A quota as plain values."""
    row: dict[str, JsonValue] = {
        "task": quota.task, "skill": str(quota.skill), "n": quota.n, "why": quota.why, "role": quota.role
    }  # fmt: skip
    row |= {"difficulty": dict(quota.difficulty)} if quota.difficulty else {}
    return row | ({"contrast": quota.contrast} if quota.contrast else {})


def add_counts(notes: Sequence[ShardNote]) -> dict[str, float]:
    """The shards' counters, added up."""
    total: dict[str, float] = {}
    for note in notes:
        for name, value in note.counts.items():
            total[name] = total.get(name, 0.0) + value
    return total


def all_drops(notes: Sequence[ShardNote], assembled: Assembled) -> list[Drop]:
    """Every drop of the run, one an image, stage, task and reason."""
    return list(merge_drops([drop for note in notes for drop in note.drops] + list(assembled.drops)))


def drop_rows(drops: Sequence[Drop]) -> list[JsonValue]:
    """Drops added up over images, the commonest first, each with its first example."""
    ledger = merge_drops([replace(drop, image="", example=drop.example or drop.image) for drop in drops])
    return [
        {"stage": d.stage, "task": d.task, "reason": d.reason, "count": d.count, "example": d.example}
        for d in sorted(ledger, key=lambda d: -d.count)
    ]


def merge_drops(drops: Sequence[Drop]) -> tuple[Drop, ...]:
    """Drops of one image, stage, task and reason become one with their sum; the first example stays."""
    merged: dict[tuple[str, str, str, str], Drop] = {}
    for drop in drops:
        key = (drop.stage, drop.task, drop.image, drop.reason)
        old = merged.get(key)
        if old is None:
            merged[key] = drop
        else:
            merged[key] = replace(old, count=old.count + drop.count, example=old.example or drop.example)
    return tuple(merged[key] for key in sorted(merged))


def removed_images(notes: Sequence[ShardNote]) -> Mapping[str, int]:
    """Images that the guard threw out, by reason."""
    fates = (fate for note in notes for fate in note.fates.values())
    return dict(Counter(fate for fate in fates if fate.startswith("benchmark_")))
