"""What is told of shortcuts: the section in manifests and in audit.json, its lines for the terminal, and the gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from synth.audit.shortcuts import ALPHA, SLACK, Shortcut, Shortcuts
from synth.errors import GateFailed
from synth.types import JsonValue

TESTED_FROM = 500
"""Runs of more pairs than this are tested; in fewer, only gross leaks could be seen."""


def shortcuts_json(found: Shortcuts) -> dict[str, JsonValue]:
    """The tests as a section. `verdict`: leaks, none_found (which is not "none"), or not_tested."""
    section: dict[str, JsonValue] = {
        "verdict": "none_found" if found.tests else "not_tested",
        "slack": SLACK,
        "alpha": ALPHA,
        "tests": [_test_json(test) for test in found.tests],
        "untested": [
            {"task": one.task, "skill": one.skill, "n": one.n, "reason": one.reason} for one in found.untested
        ],
    }
    return with_allowed(section, ())


def not_tested(reason: str) -> dict[str, JsonValue]:
    """The section of a dataset that was not tested."""
    return {"verdict": "not_tested", "reason": reason, "tests": [], "untested": [], "leaks": [], "allowed": []}


def with_allowed(section: Mapping[str, JsonValue], cues: Sequence[str]) -> dict[str, JsonValue]:
    """The section where these cues (or task/cue) may leak. `verdict` is allowed_leaks where no other one does."""
    names = [f"{t['task']}/{t['skill']}/{t['cue']}" for t in rows(section, "tests") if t["leaks"]]
    allowed = [name for name in names if _is_allowed(name, cues)]
    leaks = [name for name in names if name not in allowed]
    verdict = section["verdict"]
    if rows(section, "tests"):
        verdict = "leaks" if leaks else "allowed_leaks" if allowed else "none_found"
    return {**section, "verdict": verdict, "leaks": leaks, "allowed": allowed}


def check_shortcuts(manifest: Mapping[str, JsonValue], out: Path) -> None:
    """Raise GateFailed where a cue that is not allowed gives answers away."""
    section = manifest.get("shortcuts")
    if not isinstance(section, Mapping) or section["verdict"] != "leaks":
        return
    leaks = section["leaks"]
    named = ", ".join(str(name) for name in leaks) if isinstance(leaks, Sequence) else ""
    raise GateFailed(
        f"the dataset is written, and can partly be answered without looking: {named}",
        where=str(out),
        fix="more photos (or a larger output.oversample) so that balance has a choice, output.thin: true, drop the "
        "task, or name the cue in output.allow_shortcuts; the card then says so",
    )


def summary_line(section: Mapping[str, JsonValue]) -> str:
    """The verdict in one sentence."""
    verdict = section["verdict"]
    if verdict == "none_found":
        return "No shortcut was found."
    if verdict == "not_tested":
        return f"Not tested for shortcuts: {section.get('reason') or 'too few pairs of every skill'}."
    leaks, allowed = section["leaks"], section["allowed"]
    parts = [f"leaks: {_joined(leaks)}"] if leaks else []
    parts += [f"leaks, allowed by the config: {_joined(allowed)}"] if allowed else []
    return "; ".join(parts).capitalize() + "."


def format_shortcuts(section: Mapping[str, JsonValue]) -> str:
    """The verdict, and a line for each cue that leaks, for the terminal."""
    lines = [f"answering without looking: {summary_line(section)}"]
    lines += (f"  {_leak_text(test)}" for test in rows(section, "tests") if test["leaks"])
    lines += (f"  not tested: {one['task']}/{one['skill']}: {one['reason']}" for one in rows(section, "untested"))
    return "\n".join(lines)


def rows(section: Mapping[str, JsonValue], key: str) -> list[Mapping[str, JsonValue]]:
    """A list of objects in a section."""
    value = section.get(key)
    found: Iterator[JsonValue] = iter(value if isinstance(value, Sequence) and not isinstance(value, str) else ())
    return [row for row in found if isinstance(row, Mapping)]


def _is_allowed(name: str, cues: Sequence[str]) -> bool:
    task, _, cue = name.split("/")
    return cue in cues or f"{task}/{cue}" in cues


def _joined(value: JsonValue) -> str:
    return ", ".join(str(name) for name in value) if isinstance(value, Sequence) else ""


def _leak_text(test: Mapping[str, JsonValue]) -> str:
    accuracy, low, high, chance = (100 * float(str(test[key])) for key in ("accuracy", "low", "high", "chance"))
    return (
        f"{test['task']}/{test['skill']}: {test['cue']} ({test['about']}) is right in {accuracy:.1f} % of {test['n']} "
        f"pairs (95 % {low:.1f}-{high:.1f}, chance {chance:.1f}, p {test['p_holm']}), e.g. {test['example']}"
    )


def _test_json(test: Shortcut) -> dict[str, JsonValue]:
    return {
        "task": test.task,
        "skill": test.skill,
        "cue": test.cue,
        "about": test.about,
        "n": test.n,
        "groups": test.groups,
        "right": test.right,
        "accuracy": round(test.accuracy, 4),
        "low": round(test.low, 4),
        "high": round(test.high, 4),
        "chance": round(test.chance, 4),
        "least": round(test.least, 4),
        "p": float(f"{test.p:.3g}"),
        "p_holm": float(f"{test.p_holm:.3g}"),
        "leaks": test.leaks,
        "example": test.example,
    }
