"""Rewards that the row's own answer decides: no judge, no language model (the verifiable rewards of GRPO).

A reply is read by `synth.diagnosis.answers`, as in an evaluation. `letter` pays for the right option, `format` for a
reply that is a letter and nothing else, and `graded` pays in part for a near miss where options lie on a scale: numbers
(1 - |error| / range of the options) and orders of the same things (share of pairs the right way round).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

from synth.diagnosis.answers import read_answer
from synth.types import LETTERS

Reward: TypeAlias = Callable[[str, str, Sequence[str]], float | None]
"""(reply, right letter, option texts) -> reward in [0, 1], or None where it does not apply to the question."""

NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?:\s+[^\W\d]+)?\.?")
"""A number alone or with its unit; "mark 2" and "2 is closest" are names, not numbers."""
SEPARATORS = re.compile(r"\s*(?:,|;|<|>|→|\bthen\b|\band then\b)\s*")


def letter(reply: str, answer: str, choices: Sequence[str]) -> float:
    """1 for the right option, else 0; a reply that names none, or two, is not right."""
    return float(read_answer(reply, len(choices), choices).letter == answer)


def form(reply: str, answer: str, choices: Sequence[str]) -> float:
    """1 for one option letter and nothing else, as rows teach it."""
    return float(reply.strip() in tuple(LETTERS[: len(choices)]))


def graded(reply: str, answer: str, choices: Sequence[str]) -> float | None:
    """Nearness of the option that is named to the right one; 0 where none is; None where options have no scale."""
    near = nearness(choices, answer)
    if near is None:
        return None
    said = read_answer(reply, len(choices), choices).letter
    return 0.0 if said is None else near[said]


REWARDS: Mapping[str, Reward] = {"letter": letter, "format": form, "graded": graded}


def nearness(choices: Sequence[str], answer: str) -> Mapping[str, float] | None:
    """How near each option lies to the right one, 1 for the right one itself; None where they lie on no scale."""
    right = LETTERS.index(answer)
    values = numbers(choices)
    if values is not None:
        width = max(values) - min(values)
        return {LETTERS[i]: 1 - abs(value - values[right]) / width for i, value in enumerate(values)}
    orders = _orders(choices)
    if orders is not None:
        return {LETTERS[i]: _agreement(order, orders[right]) for i, order in enumerate(orders)}
    return None


def numbers(choices: Sequence[str]) -> list[float] | None:
    """The number that each option is, where each is one and they differ."""
    values = [float(found[1]) for choice in choices if (found := NUMBER.fullmatch(choice.strip()))]
    return values if len(choices) == len(set(values)) > 1 else None


def _orders(choices: Sequence[str]) -> list[list[str]] | None:
    """The options as orders of the same three or more things."""
    orders = [[part for part in SEPARATORS.split(choice.strip()) if part] for choice in choices]
    things = sorted(orders[0])
    if len(things) < 3 or len(set(things)) < len(things) or any(sorted(order) != things for order in orders):
        return None
    return orders


def _agreement(order: Sequence[str], right: Sequence[str]) -> float:
    place = {thing: i for i, thing in enumerate(order)}
    pairs = list(combinations(right, 2))
    return sum(place[first] < place[second] for first, second in pairs) / len(pairs)
