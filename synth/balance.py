"""Chooses among finished pairs so that nothing but the picture tells the answer.

Within a skill every stratum (say "lower" and "higher") gives the same number of pairs, and within a stratum every
answer letter does. A stratum "1-4/2" belongs to the block "1-4": strata are equal within a block, while blocks are as
large as they come, as even as they can be. A block "cup|lamp#2" needs so many different strata, and gives nothing while
it has fewer: what only ever occurs one way round can be answered without looking. Pairs are taken in rounds, one from
each (stratum, letter); when a cell runs dry the rounds end, and a last round takes at most one more pair a cell, so
that no two counts differ by more than one. What would have tipped the balance is left out, and reported.

The choice depends on the pairs and the seed alone, not on their order: pairs are ranked by a keyed hash of their id.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pydantic import Field

from synth.config import Config
from synth.types import Drop


class Row(Protocol):
    """What balance needs to know of a pair."""

    @property
    def qa_id(self) -> str: ...
    @property
    def skill(self) -> str: ...
    @property
    def stratum(self) -> str: ...
    @property
    def answer(self) -> str: ...
    @property
    def image_id(self) -> str: ...


RowT = TypeVar("RowT", bound=Row)


class BalanceOptions(Config):
    """How strict the choice is."""

    equal: bool = True
    """False: as even as the pairs allow, but nothing is lost for evenness. For thinning the pairs of one image."""
    per_image: int | None = Field(None, ge=1)
    """Most pairs of one skill from one image; null for no limit."""


STRICT = BalanceOptions()
THIN = BalanceOptions(equal=False)


def choose(
    candidates: Sequence[RowT],
    quota: int,
    seed: int,
    options: BalanceOptions = STRICT,
    together: Sequence[str] = (),
) -> tuple[list[RowT], list[Drop]]:
    """At most `quota` pairs, balanced, in the order of their keyed hash; and what was left out, by reason.

    `together`: strata outside blocks that are worth nothing where one of them is missing.

    Reasons: duplicate (an id twice), image_cap, letter_balance, stratum_balance, one_sided, over_quota. `Drop.task` is
    the skill.
    Raises ValueError for a negative quota.
    """
    if quota < 0:
        raise ValueError(f"a quota of {quota} pairs")
    lost = _Lost()
    unique: dict[str, RowT] = {}
    for row in candidates:
        if row.qa_id in unique:
            lost.add("duplicate", row)
        unique[row.qa_id] = row
    ranked = sorted(unique.values(), key=lambda row: _rank(row.qa_id, seed))
    groups = _groups(ranked, frozenset(together))
    taken: list[RowT] = []
    images: Counter[tuple[str, str]] = Counter()
    while len(taken) < quota and any(not group.dry for group in groups):
        group = min((g for g in groups if not g.dry), key=lambda g: (g.taken, g.name))
        found = group.round(images, options.per_image, lost)
        taken += group.settle(found, quota - len(taken), images)
    if not options.equal and len(taken) < quota:
        taken += _fill(groups, quota - len(taken), images, options.per_image, lost)
    full = len(taken) >= quota
    for group in groups:
        group.leave(full, lost)
    order = {row.qa_id: rank for rank, row in enumerate(ranked)}
    return sorted(taken, key=lambda row: order[row.qa_id]), list(lost.drops())


@dataclass
class _Lost:
    """Counts of what balance cost."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, reason: str, row: Row) -> None:
        key = (reason, str(row.skill))
        self.counts[key] += 1
        self.examples.setdefault(key, f"{row.stratum} {row.answer}: {row.qa_id}")

    def drops(self) -> Iterator[Drop]:
        for (reason, skill), count in sorted(self.counts.items()):
            example = self.examples[reason, skill]
            yield Drop(stage="balance", task=skill, image="", reason=reason, count=count, example=example)


@dataclass
class _Group(Generic[RowT]):
    """One block of strata of one skill: what must be equal among itself."""

    name: str
    letters: tuple[str, ...]
    cells: dict[tuple[str, str], deque[RowT]]
    """(stratum, letter) -> pairs in the order of their rank."""
    taken: int = 0
    rounds: int = 0
    dry: bool = False
    one_sided: bool = False
    """It lacks strata that its block needs."""
    missing: tuple[tuple[str, str], ...] = ()
    """Cells that ended the rounds."""

    @property
    def strata(self) -> list[str]:
        return sorted({stratum for stratum, _ in self.cells})

    def round(self, images: Counter[tuple[str, str]], cap: int | None, lost: _Lost) -> dict[tuple[str, str], RowT]:
        """The next pair of each cell; scarce cells first, since an image's share may be used up by the others."""
        used: Counter[tuple[str, str]] = Counter()
        found: dict[tuple[str, str], RowT] = {}
        for cell in sorted(self.cells, key=lambda c: (len(self.cells[c]), c)):
            queue = self.cells[cell]
            while queue:
                row = queue.popleft()
                image = (str(row.skill), row.image_id)
                if cap is not None and images[image] + used[image] >= cap:
                    lost.add("image_cap", row)
                    continue
                used[image] += 1
                found[cell] = row
                break
        return found

    def settle(self, found: dict[tuple[str, str], RowT], room: int, images: Counter[tuple[str, str]]) -> list[RowT]:
        """The pairs of a round that keep the balance; what is not used goes back."""
        whole = len(found) == len(self.cells)
        strata = self.strata
        most = len(self.letters) if whole else max(1, min(self._per_stratum(found, s) for s in strata))
        kept: list[RowT] = []
        given: Counter[str] = Counter()
        # Diagonally over strata and letters, beginning elsewhere each round: a part of a round is even, too.
        for step in range(len(self.letters)):
            for i, stratum in enumerate(strata):
                cell = (stratum, self.letters[(self.rounds + step + i) % len(self.letters)])
                if cell in found and given[stratum] < most and len(kept) < room:
                    row = found.pop(cell)
                    given[stratum] += 1
                    images[str(row.skill), row.image_id] += 1
                    kept.append(row)
        if not whole:
            self.missing = tuple(cell for cell, queue in sorted(self.cells.items()) if not queue and cell not in found)
        for cell, row in found.items():
            self.cells[cell].appendleft(row)
        self.taken += len(kept)
        self.rounds += 1
        self.dry = not whole or not kept
        return kept

    def leave(self, full: bool, lost: _Lost) -> None:
        """Report what is left."""
        short = {stratum for stratum, _ in self.missing}
        for (stratum, _), queue in sorted(self.cells.items()):
            unequal = "letter_balance" if stratum in short else "stratum_balance"
            unequal = "one_sided" if self.one_sided else unequal
            for row in queue:
                lost.add("over_quota" if full and not self.dry else unequal, row)

    def _per_stratum(self, found: dict[tuple[str, str], RowT], stratum: str) -> int:
        return sum(cell[0] == stratum for cell in found)


def _groups(ranked: Sequence[RowT], together: frozenset[str]) -> list[_Group[RowT]]:
    letters: dict[str, set[str]] = {}
    strata: dict[tuple[str, str], set[str]] = {}
    for row in ranked:
        letters.setdefault(str(row.skill), set()).add(row.answer)
        block = row.stratum.rpartition("/")[0]
        strata.setdefault((str(row.skill), block), set()).add(row.stratum)
    groups: dict[tuple[str, str], _Group[RowT]] = {}
    for (skill, block), members in sorted(strata.items()):
        known = tuple(sorted(letters[skill]))
        cells: dict[tuple[str, str], deque[RowT]] = {(s, letter): deque() for s in sorted(members) for letter in known}
        one_sided = not together <= members if not block else len(members) < _strata_needed(block)
        groups[skill, block] = _Group(
            name=f"{skill} {block}", letters=known, cells=cells, one_sided=one_sided, dry=one_sided
        )
    for row in ranked:
        group = groups[str(row.skill), row.stratum.rpartition("/")[0]]
        group.cells[row.stratum, row.answer].append(row)
    return list(groups.values())


def _strata_needed(block: str) -> int:
    number = block.rpartition("#")[2]
    return int(number) if "#" in block and number.isdecimal() else 1


def _fill(
    groups: Sequence[_Group[RowT]], room: int, images: Counter[tuple[str, str]], cap: int | None, lost: _Lost
) -> list[RowT]:
    """Further pairs in rounds over all cells, whatever that does to the balance."""
    kept: list[RowT] = []
    while len(kept) < room:
        before = len(kept)
        for group in groups:
            found = group.round(images, cap, lost)
            for cell, row in sorted(found.items()):
                if len(kept) < room:
                    images[str(row.skill), row.image_id] += 1
                    kept.append(row)
                else:
                    group.cells[cell].appendleft(row)
        if len(kept) == before:
            break
    return kept


def _rank(qa_id: str, seed: int) -> bytes:
    return hashlib.blake2b(qa_id.encode(), key=seed.to_bytes(8, "big", signed=True), digest_size=16).digest()
