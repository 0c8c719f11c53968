"""Two runs of one benchmark: what changed, how sure that is, and which categories must not be compared at all.

A difference between two scores is a change of the model only where everything else stayed: the key, the prompt, the
options, the pictures and the items. Each category is held to that before a number is computed; one that fails is
refused with its reason. Refusals look at files and never at which replies are right, so the categories that remain are
a family of tests that was fixed beforehand, and Holm's correction runs over these alone.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from pydantic import Field

from synth.config import Config
from synth.diagnosis.alarms import is_circular
from synth.diagnosis.keys import KeyNote, key_hash, key_note
from synth.diagnosis.paired import Pair, cell_of, cells_json, cells_of, judged, macro_of, points_between
from synth.diagnosis.statistics import corrected, paired_sample_size
from synth.errors import ConfigError, ResultsError
from synth.findings import Cell, Flip, Snapshot
from synth.types import JsonValue, Outcome

LEAST_COMMON = 0.90
"""Share of either run's items that the other must hold."""
MANY_SILENT = 0.05
"""Change of the share of replies without a letter from which a reader must know of it."""
WORTHWHILE = 0.05
"""The change that `needed` is computed for: five points."""
WIDTH = 120
"""Columns of a terminal."""

Run = Mapping[str, Outcome]
"""The outcomes of one category by item id."""


class SnapshotGate(Config):
    """When a new run may replace the old one."""

    alpha: float = Field(0.05, gt=0, lt=1)
    margin: float | None = Field(None, gt=0, lt=1)
    """Share (0.03: 3 points) that the mean over the categories may lose: the interval of its change must stay above it.
    One category has too few items to be asked that. None: only what is shown to have regressed fails."""
    allow_refused: tuple[str, ...] = ()
    """Categories that may be left out of the comparison."""


@dataclass(frozen=True, kw_only=True)
class _Aligned:
    """One category of both runs, item by item; items without a public key in either are gone."""

    pairs: tuple[Pair, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    circular: tuple[bool, bool]
    keys: tuple[KeyNote, KeyNote]
    """What is known of the key of each run."""
    hidden: int


def compare_runs(
    before: Sequence[Outcome], after: Sequence[Outcome], *, gate: SnapshotGate | None = None, seed: int = 0
) -> Snapshot:
    """Compare two runs category by category on their common items.

    Args:
        before: outcomes of one model. An item that comes twice counts with its last reply.
        after: outcomes of one model, mostly the next version of the same.
        gate: what fails the gate; the default fails on every regression and every refused category.
        seed: of the bootstrap.

    Raises ResultsError where a run is empty or mixes models, ConfigError where the gate names an unknown category.
    """
    gate = gate or SnapshotGate()
    names = _model(before, "before"), _model(after, "after")
    old, new = _by_category(before), _by_category(after)
    unknown = sorted(set(gate.allow_refused) - old.keys() - new.keys())
    if unknown:
        raise ConfigError(
            f"no such category: {', '.join(unknown)}", where="--allow-refused", fix=f"known: {', '.join(old)}"
        )
    aligned = {name: _align(old.get(name, {}), new.get(name, {})) for name in sorted(old.keys() | new.keys())}
    refused = {name: reason for name, it in aligned.items() if (reason := _refusal(it))}
    compared = {name: it.pairs for name, it in aligned.items() if name not in refused}
    units = {name: _units(pairs) if aligned[name].circular[0] else pairs for name, pairs in compared.items()}
    cells = cells_of(units, gate.alpha, seed, "snapshot")
    together = [pair for pairs in units.values() for pair in pairs]
    overall = judged({"": cell_of(together, seed, "overall")}, gate.alpha)[""] if together else None
    macro_before, macro_after, _, macro_low, macro_high = macro_of(units, seed) if units else (0.0,) * 5
    snapshot = Snapshot(
        before=names[0],
        after=names[1],
        categories=cells,
        overall=overall,
        macro_before=macro_before,
        macro_after=macro_after,
        macro_low=macro_low,
        macro_high=macro_high,
        flips=tuple(flip for pairs in compared.values() for flip in _flips(pairs)),
        refused=refused,
        only_before=sum(len(it.only_before) for it in aligned.values()),
        only_after=sum(len(it.only_after) for it in aligned.values()),
        needed={name: _needed(cell) for name, cell in cells.items()},
        gate_passed=False,
        gate_reasons=(),
        warnings=tuple(_warnings(before, after, aligned, compared)),
    )
    reasons = tuple(_gate(snapshot, gate))
    return replace(snapshot, gate_passed=not reasons, gate_reasons=reasons)


# --------------------------------------------------------------------------------------------------- item by item


def _model(outcomes: Sequence[Outcome], which: str) -> str:
    models = sorted({outcome.model for outcome in outcomes})
    if len(models) != 1:
        found = f"outcomes of {len(models)} models: {', '.join(models)}" if models else "no outcomes"
        raise ResultsError(found, where=f"the run {which}", fix="give the results of one model")
    return models[0]


def _by_category(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Outcome]]:
    runs: dict[str, dict[str, Outcome]] = {}
    for outcome in outcomes:
        runs.setdefault(outcome.category, {})[outcome.item_id] = outcome
    return runs


def _keyed(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.gold is not None and outcome.correct is not None


def _align(old: Run, new: Run) -> _Aligned:
    everything = dict.fromkeys([*old, *new])
    keyed = [item_id for item_id in everything if _keyed(old.get(item_id)) or _keyed(new.get(item_id))]
    return _Aligned(
        pairs=tuple((old[i], new[i]) for i in keyed if i in old and i in new),
        only_before=tuple(i for i in keyed if i not in new),
        only_after=tuple(i for i in keyed if i not in old),
        circular=(_is_circular(old), _is_circular(new)),
        keys=(_key_note(old), _key_note(new)),
        hidden=len(everything) - len(keyed),
    )


def _is_circular(run: Run) -> bool:
    return any(map(is_circular, run.values()))


def _key_note(run: Run) -> KeyNote:
    return key_note([outcome for outcome in run.values() if _keyed(outcome)])


def _units(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Circular evaluation asks a question once a rotation; it is answered rightly only if all rotations are."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair[0].group or pair[0].item_id, []).append(pair)
    return tuple(
        (
            replace(members[0][0], item_id=group, correct=all(a.correct for a, _ in members)),
            replace(members[0][1], item_id=group, correct=all(b.correct for _, b in members)),
        )
        for group, members in groups.items()
    )


def _flips(pairs: Sequence[Pair]) -> list[Flip]:
    """Every item whose answer changed."""
    return [
        Flip(
            item_id=a.item_id,
            category=a.category,
            kind=_kind(bool(a.correct), bool(b.correct)),
            before=a.letter,
            after=b.letter,
            gold=a.gold or "",
        )
        for a, b in pairs
        if a.letter != b.letter
    ]


def _kind(before: bool, after: bool) -> Literal["gained", "lost", "still wrong"]:
    if before == after:
        return "still wrong"
    return "gained" if after else "lost"


def _needed(cell: Cell) -> int:
    """Items for a change of five points where as many answers change as here; at least those five points must."""
    return paired_sample_size(WORTHWHILE, max((cell.gained + cell.lost) / cell.n, WORTHWHILE))


# ------------------------------------------------------------------------------------------------------- refusals


def _refusal(it: _Aligned) -> str:
    """Why the two results of a category are not compared; "" where they may be."""
    n, n_old, n_new = len(it.pairs), len(it.pairs) + len(it.only_before), len(it.pairs) + len(it.only_after)
    if not n_old and not n_new:
        return f"no key: the right answers of all {it.hidden} items are hidden"
    if not n_old or not n_new:
        which, ids = ("before", it.only_before) if n_old else ("after", it.only_after)
        return f"only in the run {which}: {len(ids)} items (e.g. {ids[0]})"
    if it.circular[0] != it.circular[1]:
        which = "before" if it.circular[0] else "after"
        return f"circular {which}, plain in the other run: a question counts as right by another rule"
    if n < LEAST_COMMON * max(n_old, n_new):
        example = (*it.only_before, *it.only_after)[0]
        return (
            f"other items: {n} are common, of {n_old} before and {n_new} after (e.g. {example} is in one run only); "
            f"at least {100 * LEAST_COMMON:g} % of either must be"
        )
    found = [text for text in (_difference(it.pairs, what, value, advice) for what, value, advice in _SAME) if text]
    hashes = [key_hash(run)[:8] for run in zip(*it.pairs, strict=True)]
    if hashes[0] != hashes[1]:
        found.append(f"key {hashes[0]} before, {hashes[1]} after")
    found += dict.fromkeys(note.text for note in it.keys if note.superseded)
    return "; ".join(found)


def _difference(pairs: Sequence[Pair], what: str, value: Callable[[Outcome], str], advice: str) -> str:
    """Where a condition differs on common items; "" where it does not, or where one run does not tell it."""
    known = [(a.item_id, value(a), value(b)) for a, b in pairs if value(a) and value(b)]
    differing = [row for row in known if row[1] != row[2]]
    if not differing:
        return ""
    item_id, old, new = differing[0]
    return (
        f"{what} differs on {len(differing)} of {len(pairs)} common items (e.g. {item_id}: {old} before, {new} after): "
        f"{advice}"
    )


_AGAIN = "run both under the same conditions"
_SAME: tuple[tuple[str, Callable[[Outcome], str], str], ...] = (
    ("the right letter", lambda o: o.gold or "hidden", "another key or order of options; score both runs with one key"),
    ("the prompt", lambda o: o.prompt_hash, _AGAIN),
    ("the number of options", lambda o: str(o.n_options), _AGAIN),
    ("the number of images", lambda o: str(o.n_images), _AGAIN),
    ("the order of the images", lambda o: o.tags.get("image_order", ""), _AGAIN),
    # Result files name a layout only where it is not the usual one.
    ("the layout of the images", lambda o: o.tags.get("layout", "separate"), _AGAIN),
)
"""What must be the same on every common item: its name, its value ("": unknown), and what to do."""


# ------------------------------------------------------------------------------------------------ warnings and gate


def _warnings(
    before: Sequence[Outcome],
    after: Sequence[Outcome],
    aligned: Mapping[str, _Aligned],
    compared: Mapping[str, Sequence[Pair]],
) -> list[str]:
    found = []
    for which, outcomes in (("before", before), ("after", after)):
        double = [key for key, n in Counter((o.category, o.item_id) for o in outcomes).items() if n > 1]
        if double:
            found.append(f"{len(double)} items come twice {which} (e.g. {double[0][1]}); the last reply of each counts")
    hidden = sum(it.hidden for it in aligned.values())
    if hidden:
        found.append(f"{hidden} items have no public key and are left out")
    for name in compared:
        missing = (*aligned[name].only_before, *aligned[name].only_after)
        if missing:
            found.append(f"{name}: {len(missing)} items are in one run only (e.g. {missing[0]}) and left out")
        if aligned[name].circular[0]:
            found.append(f"{name}: circular; a question counts as right when all its rotations are")
        found += [f"{name}: {text}" for text in dict.fromkeys(note.text for note in aligned[name].keys) if text]
    blind = [name for name, pairs in compared.items() if not all(a.prompt_hash and b.prompt_hash for a, b in pairs)]
    if blind:
        found.append(
            f"the files do not tell every prompt of {len(blind)} of {len(compared)} categories (e.g. {blind[0]}): that "
            "both runs were asked the same cannot be checked"
        )
    return found + [note for name, pairs in compared.items() if (note := _silence(name, pairs))]


def _silence(name: str, pairs: Sequence[Pair]) -> str:
    """A change of refusals and unread replies is no change of sight."""
    old, new = sum(a.letter is None for a, _ in pairs), sum(b.letter is None for _, b in pairs)
    if abs(new - old) < MANY_SILENT * len(pairs):
        return ""
    answered = [(bool(a.correct), bool(b.correct)) for a, b in pairs if a.letter is not None and b.letter is not None]
    change = sum(b - a for a, b in answered)
    rest = (
        f"{100 * change / len(answered):+.1f} points on the {len(answered)} answered" if answered else "none answered"
    )
    return f"{name}: {old} replies without a letter before, {new} after; {rest} by both"


def _gate(snapshot: Snapshot, gate: SnapshotGate) -> list[str]:
    """Why the new run must not stand; empty: it may."""
    reasons = [
        f"{name}: regressed by {-100 * cell.delta:.1f} points {points_between(cell.low, cell.high)}"
        for name, cell in [
            *snapshot.categories.items(),
            *([("all items", snapshot.overall)] if snapshot.overall else []),
        ]
        if cell.verdict == "regressed"
    ]
    reasons += [f"{name}: could not be compared" for name in snapshot.refused if name not in gate.allow_refused]
    if snapshot.overall is None:
        reasons.append("nothing was compared")
    elif gate.margin is not None and snapshot.macro_low <= -gate.margin:
        reasons.append(
            f"the mean over the categories: a loss of more than {100 * gate.margin:g} points cannot be ruled out "
            f"{points_between(snapshot.macro_low, snapshot.macro_high)}"
        )
    return reasons


# ---------------------------------------------------------------------------------------------------------- output


def snapshot_to_json(snapshot: Snapshot) -> dict[str, JsonValue]:
    """The content of snapshot.json."""
    return {
        "before": snapshot.before,
        "after": snapshot.after,
        "macro": {
            "before": snapshot.macro_before,
            "after": snapshot.macro_after,
            "delta": snapshot.macro_after - snapshot.macro_before,
            "low": snapshot.macro_low,
            "high": snapshot.macro_high,
        },
        "overall": asdict(snapshot.overall) if snapshot.overall else None,
        "categories": cells_json(snapshot.categories),
        "refused": dict(snapshot.refused),
        "only_before": snapshot.only_before,
        "only_after": snapshot.only_after,
        "needed": dict(snapshot.needed),
        "gate": {"passed": snapshot.gate_passed, "reasons": list(snapshot.gate_reasons)},
        "warnings": list(snapshot.warnings),
        "flips": [asdict(flip) for flip in snapshot.flips],
    }


def format_snapshot(snapshot: Snapshot) -> str:
    """The comparison for a terminal: shares in percent, changes in points; `for +5`: items that such a claim needs."""
    width = max([8, *map(len, [*snapshot.categories, *snapshot.refused])])
    head = (
        f"{'category':<{width}}{'n':>6}{'before':>8}{'after':>7}{'change':>8}  {'95 %':<15}{'won':>5}{'lost':>5}"
        f"{'p (Holm)':>10}{'for +5':>8}  verdict"
    )
    lines = [f"{snapshot.before} -> {snapshot.after}", head]
    lines += [_line(name.ljust(width), cell, snapshot.needed[name]) for name, cell in snapshot.categories.items()]
    if snapshot.overall:
        change = snapshot.macro_after - snapshot.macro_before
        lines.append(_line("all items".ljust(width), snapshot.overall, None))
        lines.append(
            f"mean over {len(snapshot.categories)} categories {100 * snapshot.macro_before:.1f} -> "
            f"{100 * snapshot.macro_after:.1f}: {100 * change:+.1f} points "
            f"{points_between(snapshot.macro_low, snapshot.macro_high)}"
        )
    kinds = Counter(flip.kind for flip in snapshot.flips)
    lines.append("answers changed: " + (", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "none"))
    notes = [f"not compared: {name}: {reason}" for name, reason in snapshot.refused.items()]
    notes += [f"warning: {text}" for text in snapshot.warnings]
    notes.append("gate: " + ("passed" if snapshot.gate_passed else "; ".join(snapshot.gate_reasons)))
    return "\n".join(lines + [textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in notes])


def _line(name: str, cell: Cell, needed: int | None) -> str:
    return (
        f"{name}{cell.n:>6}{100 * cell.before:>8.1f}{100 * cell.after:>7.1f}{100 * cell.delta:>+8.1f}  "
        f"{points_between(cell.low, cell.high):<15}{cell.gained:>5}{cell.lost:>5}"
        f"{corrected(cell.p, cell.p_holm):>10.2g}{needed or '-':>8}  {cell.verdict}"
    )
