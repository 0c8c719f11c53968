"""Rows of result files ↔ items of a benchmark: which item a row is about, and what the benchmark says of it.

A harness names an item in its own way. In this order: the item's own id; the id behind the set's name ("BLINK:812") or
behind the category ("Count_17"); the only item of the category with this question and these options; the row's number
in the benchmark, or in its category, where category, question and options agree. Row numbers can lie, so a file that is
joined by them must agree with the benchmark's key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from synth.contracts import BenchmarkData
from synth.errors import ResultsError
from synth.types import LETTERS, Item, Outcome, Reply

UNKNOWN = "unknown"
"""Tag `item` of a row whose item the benchmark does not have."""
_AGREE = 0.75
"""Share of a file's answers that must be the benchmark's where row numbers join them; a wrong order gives chance."""
_NUMBER = re.compile(r".*?(\d+)")


def fold(text: str) -> str:
    """Letters and digits only, lower case: "Multi-view Reasoning" and "Multi-view_Reasoning" are one name."""
    return re.sub(r"[\W_]+", "", text.casefold()) or text


@dataclass(frozen=True)
class _Found:
    item: Item
    by_number: bool


class _Lookup:
    """A benchmark's items, by everything that names one."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._by_id = {item.item_id: item for item in items}
        self._items = items
        self._scored = [item for item in items if item.answer is not None]
        self._by_category: dict[str, list[Item]] = {}
        self._by_content: dict[tuple[str, str, tuple[str, ...]], list[Item]] = {}
        for item in items:
            self._by_category.setdefault(fold(item.category), []).append(item)
            self._by_content.setdefault(_content(item.category, item.question, item.choices), []).append(item)

    def find(self, reply: Reply) -> _Found | None:
        """The item of a row, or None."""
        exact = self._by_id.get(reply.item_id)
        if exact is not None and not exact.item_id.isdigit():
            return _Found(exact, by_number=False)
        # The rotations of a question are about one item.
        name = reply.group if "rotation" in reply.tags else reply.item_id
        tail = name.rpartition(":")[2]
        for candidate in (exact, self._by_id.get(tail), self._by_id.get(f"{reply.category}_{tail}")):
            if candidate is not None and self._fits(candidate, reply):
                return _Found(candidate, by_number=True)
        same = self._by_content.get(_content(reply.category, reply.question, reply.choices), [])
        if len(same) == 1:
            return _Found(same[0], by_number=False)
        m = _NUMBER.fullmatch(tail)
        return self._numbered(int(m[1]), reply) if m is not None else None

    def _numbered(self, number: int, reply: Reply) -> _Found | None:
        # Result files of a split with a key do not count the items of the split without one.
        hidden = reply.gold is None
        within = [item for item in self._of(reply) if hidden or item.answer is not None]
        for items in (self._items if hidden else self._scored, within):
            if number < len(items) and self._fits(items[number], reply):
                return _Found(items[number], by_number=True)
        return None

    def _of(self, reply: Reply) -> Sequence[Item]:
        return self._by_category.get(fold(reply.category), ())

    def _fits(self, item: Item, reply: Reply) -> bool:
        """Whether all that the row tells of its item is true of this one; the right answer is not looked at."""
        told = []
        # A category that the benchmark does not have (the set's own name) says nothing.
        if fold(reply.category) in self._by_category:
            told.append(fold(reply.category) == fold(item.category))
        if reply.question:
            told.append(fold(item.question) in fold(reply.question))
        if reply.choices:
            told.append(sorted(map(fold, reply.choices)) == sorted(map(fold, item.choices)))
        return bool(told) and all(told)


def _content(category: str, question: str, choices: Iterable[str]) -> tuple[str, str, tuple[str, ...]]:
    return fold(category), fold(question), tuple(sorted(fold(choice) for choice in choices))


def join(replies: Sequence[Reply], data: BenchmarkData, where: str) -> list[tuple[Reply, Item | None]]:
    """Each row with its item, and the row completed from it: id, category, choices, right letter, group, tags.

    Where a row shows the options in another order, the right letter is moved along; where the file's key has another
    letter, that is in the tag `file_gold`. Rows without an item are kept, with the tag `item: unknown`. Raises
    ResultsError where no row has an item, and where the answers of rows that only their number joins are not the
    benchmark's.
    """
    lookup = _Lookup(data.items)
    found = [lookup.find(reply) for reply in replies]
    if replies and not any(found):
        known = ", ".join(item.item_id for item in data.items[:3])
        example = f"{replies[0].item_id!r} ({replies[0].category})"
        raise ResultsError(
            f"none of {len(replies)} rows is about an item of {data.name}: {example} is none of {known} …",
            where=where,
            fix="is this the benchmark, and the split, that was run?",
        )
    pairs = [_complete(reply, hit.item) if hit is not None else None for reply, hit in zip(replies, found, strict=True)]
    numbered = [
        reply.gold == full.gold
        for reply, full, hit in zip(replies, pairs, found, strict=True)
        if hit is not None and hit.by_number and full is not None and reply.gold is not None and full.gold is not None
    ]
    if numbered and sum(numbered) < _AGREE * len(numbered):
        raise ResultsError(
            f"the file's answers are {data.name}'s on only {sum(numbered)} of {len(numbered)} rows: its row numbers "
            "follow another order, or another key",
            where=where,
            fix="read it without the benchmark's items, or give the revision that was run",
        )
    return [
        (full, hit.item) if full is not None and hit is not None
        else (replace(reply, tags={**reply.tags, "item": UNKNOWN}), None)
        for reply, full, hit in zip(replies, pairs, found, strict=True)
    ]  # fmt: skip


def _complete(reply: Reply, item: Item) -> Reply:
    choices, gold = item.choices, item.answer
    folded = [fold(choice) for choice in item.choices]
    shown = [fold(choice) for choice in reply.choices]
    if shown != folded and sorted(shown) == sorted(folded) and len(set(folded)) == len(folded):
        choices = reply.choices
        gold = LETTERS[shown.index(folded[LETTERS.index(item.answer)])] if item.answer is not None else None
    tags = {**item.tags, **reply.tags}
    if gold is None:
        gold = reply.gold
    elif reply.gold not in (None, gold):
        tags["file_gold"] = reply.gold or ""
    rotation = reply.tags.get("rotation", "0")
    return replace(
        reply,
        item_id=item.item_id if rotation == "0" else f"{item.item_id}:rotation_{rotation}",
        category=item.category,
        choices=choices,
        gold=gold,
        n_options=len(choices),
        group=item.item_id if "rotation" in reply.tags else item.group or reply.group,
        tags=tags,
    )


def missing(outcomes: Iterable[Outcome], data: BenchmarkData) -> Mapping[str, tuple[str, ...]]:
    """Category → ids of the benchmark's items with a known answer that no outcome is about; only such categories."""
    seen = {outcome.item_id for outcome in outcomes}
    absent: dict[str, list[str]] = {}
    for item in data.items:
        if item.answer is not None and item.item_id not in seen:
            absent.setdefault(item.category, []).append(item.item_id)
    return {category: tuple(ids) for category, ids in sorted(absent.items())}


def unknown(outcomes: Iterable[Outcome]) -> Mapping[str, int]:
    """Category → rows that were kept although the benchmark has no such item."""
    return dict(sorted(Counter(o.category for o in outcomes if o.tags.get("item") == UNKNOWN).items()))
