"""Answer keys: their identity, and keys that are known to be wrong.

BLINK's Relative_Reflectance key (val) was wrong until September 2025: questions and answers had been mismatched, and
about nine letters of ten are others since (zeyofu/BLINK_Benchmark#13). Result files with it live on. It is recognised
 - by the hash of the whole key, exactly;
 - in part, or under other item ids, by one bit an item: the lowest bit of a hash of (number, letter). The old key
   agrees with all of its 134 bits. One letter in ten stayed and a foreign letter agrees with every second bit, so the
   mended key agrees with 55 %; `_STAYED` grants it 75 %. A bit leaves two of three letters open on average: no key is
   copied here.
   Ids that are not the authors' (row numbers) are tried at every shift that fits, and p is corrected for the shifts.
Under foreign ids, a letter that is right more often than it was in the old key rules that key out.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from synth.diagnosis.statistics import binomial_p
from synth.types import Outcome

CATEGORY = "Relative_Reflectance"
_OLD = (
    "BLINK's Relative_Reflectance of before September 2025, which its authors found wrong and replaced "
    "(zeyofu/BLINK_Benchmark#13)"
)
_VOID = f"the key is {_OLD}: its accuracy means nothing; score the replies again with the present key"
SUPERSEDED_KEYS: Mapping[str, str] = {"43d222eccf305c0fe3109074b067153a43c05e64e5593b2bee56ac93810b12d0": _VOID}
"""`key_hash` of a category's whole key → what is wrong with it."""
_COUNTS: Mapping[str, int] = {"A": 40, "B": 42, "C": 52}
"""How often each letter is right in the old key."""
_N = 134
_BITS = 0x31C73E3E2E3695DE2F8B4B2420F26C0BDC
"""`key_bit` of each of its items, number 1 in the lowest place."""
_STAYED = 0.75
_SURE = 1e-3
_NEARLY = 0.95
_AUTHORS = re.compile(r"val_Relative[_ ]Reflectance_\d+")
_NUMBER = re.compile(r"(\d+)\D*$")


@dataclass(frozen=True)
class KeyNote:
    """What is known of a category's key."""

    superseded: bool | None
    """None: cannot be told."""
    text: str
    """"" where there is nothing to say."""


_FINE = KeyNote(False, "")


def key_hash(outcomes: Iterable[Outcome]) -> str:
    """Identity of an answer key: sha256 over the sorted `item_id:letter` lines of the items whose answer is known."""
    lines = sorted(f"{outcome.item_id}:{outcome.gold}" for outcome in outcomes if outcome.gold is not None)
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()


def key_note(rows: Sequence[Outcome]) -> KeyNote:
    """Whether the key of one category's items is one that its authors have withdrawn."""
    known = SUPERSEDED_KEYS.get(key_hash(rows))
    if known is not None:
        return KeyNote(True, known)
    if not rows or rows[0].category.replace(" ", "_") != CATEGORY:
        return _FINE
    # Rotations of a circular set have other letters than the key.
    plain = [row for row in rows if row.tags.get("rotation", "0") == "0"]
    letters = {row.item_id: row.gold for row in plain if row.gold is not None}
    if not letters:
        return _FINE
    by_number = {_number(item_id): letter for item_id, letter in letters.items()}
    if all(map(_AUTHORS.fullmatch, letters)) and 1 <= min(by_number) <= max(by_number) <= _N:
        return _by_own_ids(by_number)
    if any(n > _COUNTS.get(letter, 0) for letter, n in Counter(letters.values()).items()):
        return _FINE
    return _by_row_numbers(by_number)


def _number(item_id: str) -> int:
    """The last number in an id; 0 without one."""
    found = _NUMBER.search(item_id)
    return int(found[1]) if found is not None else 0


def key_bit(number: int, letter: str) -> int:
    """One bit of an item of Relative_Reflectance (`val_Relative_Reflectance_<number>`) with its right letter."""
    return hashlib.blake2b(f"{CATEGORY}:{number}:{letter}".encode(), digest_size=1).digest()[0] & 1


def _agreeing(letters: Mapping[int, str]) -> int:
    return sum(key_bit(number, letter) == _BITS >> (number - 1) & 1 for number, letter in letters.items())


def _by_own_ids(letters: Mapping[int, str]) -> KeyNote:
    n, agree = len(letters), _agreeing(letters)
    if binomial_p(agree, n, _STAYED) < _SURE and agree >= _NEARLY * n:
        # The hash has spoken on the whole key already: that one can only be an edited copy.
        if agree == n < _N:
            return KeyNote(True, _VOID)
        return KeyNote(None, f"the key looks like an edited copy of {_OLD}: check it")
    return _FINE if agree < n else KeyNote(None, f"{n} items are too few to tell whether the key is {_OLD}")


def _by_row_numbers(letters: Mapping[int, str]) -> KeyNote:
    shifts = range(max(letters) - _N, min(letters))
    if len(shifts) * binomial_p(len(letters), len(letters), _STAYED) < _SURE:
        for shift in shifts:
            if _agreeing({number - shift: letter for number, letter in letters.items()}) == len(letters):
                return KeyNote(True, _VOID)
    return KeyNote(None, f"the item ids do not tell whether the key is {_OLD}: check the dataset's revision")
