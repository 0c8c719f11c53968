"""Specialist contrast: is the signal in the pixels where the model fails?

A model and a specialist answer the same items from the same pixels. Specialist right and model wrong: the signal is
there and the model does not use it, so training can help. Both wrong: the item is ambiguous, mislabelled or too fine,
and must not feed training data. Model right and specialist wrong: a shortcut, or knowledge beyond the pixels. Items on
which the specialist has no say are counted with their reason and are in none of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from synth.diagnosis.markers import erase, find_marks
from synth.diagnosis.specialists import Sight, Specialist
from synth.diagnosis.statistics import wilson
from synth.errors import ImageError, S2PError
from synth.findings import Contrast, ContrastItem, Quadrant
from synth.images import decode, image_id
from synth.types import Frame, Item, JsonValue, Mark, Outcome, Progress, View

QUADRANTS: Mapping[tuple[bool, bool], Quadrant] = {
    (True, False): "trainable",
    (True, True): "solved",
    (False, True): "shortcut",
    (False, False): "ambiguous",
}
"""(specialist right, model right) -> quadrant."""
FEW = 20
"""Decided items below which the quadrants say nothing."""


@dataclass(frozen=True)
class _Judged:
    """An outcome with what became of it; no item where it cannot be held against anything."""

    outcome: Outcome
    item: ContrastItem | None
    reason: str
    localised: bool = False


def contrast(
    items: Sequence[Item],
    outcomes: Sequence[Outcome],
    specialist: Specialist,
    clean_images: Mapping[str, bytes] | None = None,
    progress: Progress | None = None,
) -> list[Contrast]:
    """Quadrants by category, for the categories whose skill the specialist has.

    Args:
        items: of the benchmark; `marks` and `clean` are used where an item has them, else marks are looked for in the
            picture and painted over.
        outcomes: of one model; an item that comes twice counts once, with its last outcome.
        clean_images: the benchmark's unmarked pictures, by the names in `Item.clean`.

    Raises S2PError for outcomes of several models, or of another benchmark.
    """
    models = sorted({outcome.model for outcome in outcomes})
    if len(models) > 1:
        raise S2PError(f"outcomes of {len(models)} models: {', '.join(models)}", fix="contrast one model at a time")
    by_id = {item.item_id: item for item in items}
    wanted = list({o.item_id: o for o in outcomes if o.skill in specialist.skills}.values())
    if wanted and not any(outcome.item_id in by_id for outcome in wanted):
        raise S2PError(
            f"none of {len(wanted)} outcomes is of an item of this benchmark (e.g. {wanted[0].item_id})",
            fix="give the benchmark that the model was evaluated on",
        )
    judged: dict[str, _Judged] = {}
    # Picture by picture, so that a specialist looks at each only once.
    for done, outcome in enumerate(sorted(wanted, key=lambda o: _first_picture(by_id.get(o.item_id))), start=1):
        item = by_id.get(outcome.item_id)
        judged[outcome.item_id] = _judge(outcome, item, specialist, clean_images or {})
        if progress is not None:
            progress(done, len(wanted))
    rows = [judged[outcome.item_id] for outcome in wanted]
    categories = sorted({outcome.category for outcome in wanted})
    return [
        _summary(name, specialist.name, [row for row in rows if row.outcome.category == name]) for name in categories
    ]


def _first_picture(item: Item | None) -> tuple[str, str]:
    if item is None or not item.images:
        return "", ""
    return (item.clean[0] if item.clean else image_id(item.images[0])), item.item_id


def _judge(outcome: Outcome, item: Item | None, specialist: Specialist, clean: Mapping[str, bytes]) -> _Judged:
    if item is None:
        return _Judged(outcome, None, "no_item")
    if outcome.correct is None or item.answer is None:
        return _Judged(outcome, None, "unscored")
    if outcome.gold != item.answer:
        return _Judged(outcome, None, "key_differs")
    sight = _sight(item, specialist, clean)
    letter, reason = None, sight if isinstance(sight, str) else ""
    if isinstance(sight, Sight):
        said = specialist.answer(sight)
        letter, reason = said.letter, said.reason
    row = ContrastItem(
        item_id=item.item_id,
        category=outcome.category,
        model_correct=outcome.correct,
        specialist=letter,
        reason=reason,
        specialist_correct=None if letter is None else letter == item.answer,
    )
    return _Judged(outcome, row, reason, isinstance(sight, Sight))


def _sight(item: Item, specialist: Specialist, clean: Mapping[str, bytes]) -> Sight | str:
    """The item's pictures without marks, with the places of the marks; or the reason why not."""
    labels = specialist.labels(item)
    if labels is None:
        return "choices_unclear"
    if len(item.images) < len(labels):
        return "missing_image"
    frames: list[Frame] = []
    marks: list[tuple[Mark, ...]] = []
    for index, wanted in enumerate(labels):
        try:
            seen = _look(item, index, wanted, clean)
        except ImageError as error:
            return error.reason
        if isinstance(seen, str):
            return seen
        frames.append(seen[0])
        marks.append(seen[1])
    return Sight(item=item, frames=tuple(frames), marks=tuple(marks))


def _look(
    item: Item, index: int, labels: Sequence[str], clean: Mapping[str, bytes]
) -> tuple[Frame, tuple[Mark, ...]] | str:
    known = {mark.label: mark for mark in item.marks[index]} if index < len(item.marks) else {}
    name = item.clean[index] if index < len(item.clean) else ""
    bare = _frame(item, clean[name], name) if name in clean else None
    shown = f"{item.item_id}/{index}"
    located = all(label in known for label in labels)
    if located and (bare is not None or not labels):
        return bare or _frame(item, item.images[index], shown), tuple(known[label] for label in labels)
    marked = _frame(item, item.images[index], shown)
    search = find_marks(marked.rgb, labels)
    if search.reason and not located:
        return search.reason
    places = tuple(known[label] for label in labels) if located else tuple(found.mark for found in search.marks)
    return bare or Frame(view=marked.view, rgb=erase(marked.rgb, search.marks)), places


def _frame(item: Item, data: bytes, name: str) -> Frame:
    rgb = decode(data)
    view = View(
        image_id=image_id(data),
        data=data,
        width=rgb.shape[1],
        height=rgb.shape[0],
        name=name,
        source="benchmark",
        group=item.group,
    )
    return Frame(view=view, rgb=rgb)


def _summary(category: str, specialist: str, rows: Sequence[_Judged]) -> Contrast:
    held = [row.item for row in rows if row.item is not None]
    decided = [(item, item.specialist_correct) for item in held if item.specialist_correct is not None]
    right = sum(correct for _, correct in decided)
    low, high = wilson(right, len(decided))
    found = Counter(QUADRANTS[correct, item.model_correct] for item, correct in decided)
    by_id = {row.outcome.item_id: row.outcome for row in rows}
    counted = [by_id[item.item_id] for item, _ in decided] or [row.outcome for row in rows]
    return Contrast(
        category=category,
        specialist=specialist,
        n=len(rows),
        localised=sum(row.localised for row in rows),
        decided=len(decided),
        specialist_accuracy=right / len(decided) if decided else 0.0,
        specialist_low=low,
        specialist_high=high,
        model_accuracy=sum(item.model_correct for item, _ in decided) / len(decided) if decided else 0.0,
        chance=sum(1 / outcome.n_options for outcome in counted) / len(counted),
        quadrants={name: found[name] for name in QUADRANTS.values()},
        reasons=dict(sorted(Counter(row.reason for row in rows if row.reason).items())),
        items=tuple(held),
    )


# -------------------------------------------------------------------------------------------------------------- results


def to_json(contrasts: Sequence[Contrast]) -> list[JsonValue]:
    """One object a category and specialist, items included."""
    return [asdict(entry) | {"items": [asdict(item) for item in entry.items]} for entry in contrasts]


_HEAD = (
    "category",
    "specialist",
    "items",
    "located",
    "decided",
    "right",
    "95 %",
    "model",
    "chance",
    *QUADRANTS.values(),
)


def format_contrast(contrasts: Sequence[Contrast]) -> str:
    """The quadrants for a terminal; accuracies in percent, over the decided items."""
    lines = [_HEAD, *(_line(entry) for entry in contrasts)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    body = []
    for line in lines:
        cells = [line[i].ljust(widths[i]) if i < 2 else line[i].rjust(widths[i]) for i in range(len(_HEAD))]
        body.append("  ".join(cells))
    for entry in contrasts:
        reasons = ", ".join(f"{n} {reason}" for reason, n in entry.reasons.items())
        undecided = f"; undecided: {reasons}" if reasons else ""
        body.append(f"{entry.category}, {entry.specialist}: {_reading(entry)}{undecided}")
    return "\n".join(body)


def _line(it: Contrast) -> tuple[str, ...]:
    located = f"{100 * it.localised / it.n:.1f}%"
    counts = tuple(str(it.quadrants[name]) for name in QUADRANTS.values())
    if not it.decided:
        return (it.category, it.specialist, str(it.n), located, "0", "-", "-", "-", f"{100 * it.chance:.1f}", *counts)
    interval = f"{100 * it.specialist_low:.1f}-{100 * it.specialist_high:.1f}"
    shares = (f"{100 * it.specialist_accuracy:.1f}", interval, f"{100 * it.model_accuracy:.1f}")
    return (it.category, it.specialist, str(it.n), located, str(it.decided), *shares, f"{100 * it.chance:.1f}", *counts)


def _reading(it: Contrast) -> str:
    """What the quadrants mean, in words."""
    if it.decided < FEW:
        return f"the specialist decides {it.decided} items: too few to tell"
    model_low, _ = wilson(round(it.model_accuracy * it.decided), it.decided)
    sees, knows = it.specialist_low > it.chance, model_low > it.chance
    failed = it.quadrants["trainable"] + it.quadrants["ambiguous"]
    if sees:
        return f"the signal is in the pixels of {it.quadrants['trainable']} of the model's {failed} failures"
    if knows:
        return "the model is above chance and the specialist is not: a shortcut, or a poor specialist"
    return "neither is above chance: make no training data from these items"
