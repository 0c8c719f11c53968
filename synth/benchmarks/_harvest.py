"""What the rows of a foreign benchmark become, and the counts that tell a whole copy from a part of one."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from synth.contracts import BenchmarkData
from synth.errors import BenchmarkError
from synth.types import LETTERS, Item

_FIX = "get the whole benchmark again, or set allow_partial: true to go on with this part of it"


@dataclass
class Harvest:
    """Items, and for every other row a reason and the pictures that the guard must still know."""

    name: str
    where: str
    """The copy, for messages."""
    items: list[Item] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    spare: dict[str, bytes] = field(default_factory=dict)

    def skip(self, reason: str, name: str, pictures: Sequence[bytes]) -> None:
        """Count a row that is no item; its pictures stay with the benchmark under `name`."""
        self.skipped[reason] += 1
        for number, data in enumerate(pictures, start=1):
            self.spare[name if len(pictures) == 1 else f"{name}#{number}"] = data

    def take(self, found: Item | str, name: str, pictures: Sequence[bytes]) -> None:
        """A row's item, or the reason why it is none."""
        if isinstance(found, Item):
            self.items.append(found)
        else:
            self.skip(found, name, pictures)

    def data(
        self, revision: str, counts: Mapping[str, tuple[int, int]], partial: bool, version: str = ""
    ) -> BenchmarkData:
        """The benchmark.

        Args:
            revision: digest of the content.
            counts: what is counted -> (found, published).
            partial: other counts are allowed; the revision then ends in `-partial`.
            version: part of the revision that says which of several versions was taken.

        Raises BenchmarkError for no items, an item that comes twice, one without pictures or options, and other counts
        where they are not allowed.
        """
        for item in self.items:
            if not item.images or not 2 <= len(item.choices) <= len(LETTERS):
                found = f"{len(item.images)} pictures and {len(item.choices)} options"
                raise BenchmarkError(f"{found} for the item {item.item_id}", where=self.where)
        twice = [name for name, n in Counter(item.item_id for item in self.items).items() if n > 1]
        if twice:
            fix = "are two copies in this folder?"
            raise BenchmarkError(f"{len(twice)} items come twice, e.g. {twice[0]}", where=self.where, fix=fix)
        wrong = [f"{found} of {right} {what}" for what, (found, right) in counts.items() if found != right]
        if wrong and not partial:
            raise BenchmarkError(", ".join(wrong), where=self.where, fix=_FIX)
        if not self.items:
            reasons = ", ".join(f"{n} skipped: {reason}" for reason, n in self.skipped.items())
            raise BenchmarkError(f"no items ({reasons or 'no rows'})", where=self.where, fix="is this the right file?")
        parts = [revision, *([version] if version else []), *(["partial"] if wrong else [])]
        return BenchmarkData(
            name=self.name,
            revision="-".join(parts),
            items=tuple(grouped(self.items)),
            clean_images=self.spare,
            skipped=dict(self.skipped),
        )


def grouped(items: Sequence[Item]) -> Iterator[Item]:
    """Items without a group get one: those that share a picture, directly or through a third one, are together."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    pictures = [[hashlib.sha256(data).hexdigest()[:16] for data in item.images] for item in items]
    for names in pictures:
        for name in names[1:]:
            parent[root(name)] = root(names[0])
    for item, names in zip(items, pictures, strict=True):
        yield item if item.group else replace(item, group=root(names[0]))
