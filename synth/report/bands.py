"""The order of a tag's values where they are bands of a measure: "1.15-1.3" < "1.3-1.7" < "over 1.7"."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_UNIT = r"\s*(\D*)"
_BETWEEN = re.compile(rf"{_NUMBER}\s*(?:-|–|to|\.\.)\s*{_NUMBER}{_UNIT}")
_BELOW = re.compile(rf"(?:under|below|less than|up to|at most|<=?)\s*{_NUMBER}{_UNIT}")
_ABOVE = re.compile(rf"(?:over|above|more than|at least|from|>=?)\s*{_NUMBER}{_UNIT}")
_AND_MORE = re.compile(rf"{_NUMBER}\s*(?:\+|or more|and more){_UNIT}")
_EXACT = re.compile(rf"{_NUMBER}{_UNIT}")
_LEVELS = {"easy": 0.0, "medium": 1.0, "hard": 2.0}


def in_order(values: Iterable[str]) -> tuple[str, ...] | None:
    """The values from the lowest band to the highest; None where they are not bands of one measure."""
    found = {value: _place(value) for value in values}
    if len(found) < 2 or None in found.values():
        return None
    places = {value: place for value, place in found.items() if place is not None}
    if len({place[:2] for place in places.values()}) < len(places) or len({place[2] for place in places.values()}) > 1:
        return None
    return tuple(sorted(places, key=lambda value: places[value][:2]))


def _place(value: str) -> tuple[float, float, str] | None:
    """Lower and upper end, and the words behind the number."""
    text = value.strip().lower().replace("_", " ")
    if text in _LEVELS:
        return _LEVELS[text], _LEVELS[text], "level"
    if match := _BETWEEN.fullmatch(text):
        return float(match[1]), float(match[2]), match[3].strip()
    if match := _BELOW.fullmatch(text):
        return -math.inf, float(match[1]), match[2].strip()
    if match := _ABOVE.fullmatch(text) or _AND_MORE.fullmatch(text):
        return float(match[1]), math.inf, match[2].strip()
    if match := _EXACT.fullmatch(text):
        return float(match[1]), float(match[1]), match[2].strip()
    return None
