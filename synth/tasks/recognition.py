"""Semantic questions that keep what a model already knows: object and colour at a mark, mark on an object, colour of an
object, existence.

Answered from masks, with marks only where a whole neighbourhood shows one object; boxes alone cannot tell what lies at
a point, so they yield nothing. "What colour is the chair" needs the only chair and "is there a chair" needs certainty,
so both are asked only where the truth lists every object.
Worked example: A on the mask of a red chair, B on the floor: "What is at mark A?" with chair, lamp, sofa, table: chair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from pydantic import Field, field_validator

from synth.contracts import Need, Task
from synth.tasks._asking import Asker, Draft, Ledger, Wording, letter, mapping, rows, shuffled, text
from synth.tasks._objects import (
    Limits,
    Place,
    Visible,
    distractors,
    masked,
    near_misses,
    present,
    two_places,
    visible,
)
from synth.tasks._words import is_plural, spoken, with_article
from synth.types import QA, Drop, JsonValue, Mark, Panel, PluginOptions, Provenance, Scene, Skill, narrow

NAME, VERSION = "recognition", 1
WORDINGS = {
    Skill.OBJECT_AT_MARK: (
        Wording(question="What is at mark {mark}?"),
        Wording(question="Which object is marked {mark}?"),
        Wording(question="What does point {mark} lie on?"),
        Wording(question="Name the object at mark {mark}: which is it?"),
    ),
    Skill.COLOUR_AT_MARK: (
        Wording(question="What colour is the object at mark {mark}?"),
        Wording(question="Which colour does the object at point {mark} have?"),
        Wording(question="Mark {mark} is on an object of which colour?"),
    ),
    Skill.MARK_ON_OBJECT: (
        Wording(question="Which mark is on the {object}?", choice="mark {}"),
        Wording(question="Which of the marks lies on the {object}?", choice="mark {}"),
        Wording(question="Which point is on the {object}?", choice="point {}"),
    ),
    Skill.OBJECT_COLOUR: (
        Wording(question="What colour is the {object}?"),
        Wording(question="Which colour does the {object} have?"),
        Wording(question="The {object} in the image is of which colour?"),
    ),
    Skill.EXISTENCE: (
        Wording(question="Is there {thing} in the image?"),
        Wording(question="Can you see {thing}?"),
        Wording(question="Does the picture show {thing}?"),
    ),
}
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "purple", "orange")
_N_OPTIONS = 4


class Options(PluginOptions):
    """What is asked, and how plainly it must be visible. Lengths are shares of the short side."""

    skills: tuple[Skill, ...] = Field(tuple(WORDINGS), min_length=1)
    per_skill: int = Field(1, ge=1, le=8)
    """Questions of each skill an image."""
    min_area: float = Field(0.008, gt=0, lt=1)
    """Least visible share of the image."""
    border: float = Field(0.0625, ge=0, lt=0.4)
    min_distance: float = Field(0.156, gt=0)
    pure: float = Field(0.0079, gt=0, lt=0.1)
    """Radius around a mark that shows one object only: 1 px at 128."""
    stuff_share: float = Field(0.3, ge=0, le=1)
    """Share of the marks put on walls, floor and the like."""
    colours: tuple[str, ...] = Field(COLOURS, min_length=_N_OPTIONS)

    @field_validator("skills")
    @classmethod
    def _known(cls, skills: tuple[Skill, ...]) -> tuple[Skill, ...]:
        strange = [skill.value for skill in skills if skill not in WORDINGS]
        if strange:
            raise ValueError(f"{', '.join(strange)}: known are {', '.join(skill.value for skill in WORDINGS)}")
        return skills


@dataclass(frozen=True)
class _Known:
    """What the makers of questions draw from."""

    seen: Visible
    options: Options
    rng: np.random.Generator

    def two_places(self, *, coloured: bool = False, differ: bool = False) -> dict[str, Place] | None:
        """Places for the marks A and B."""
        return two_places(self.seen, self.rng, self.options.stuff_share, coloured=coloured, differ=differ)


def generate(scene: Scene, options: PluginOptions, rng: np.random.Generator) -> Iterator[QA | Drop]:
    """Up to `per_skill` questions of each skill, then what fell and why."""
    chosen = narrow(options, Options)
    ledger = Ledger(NAME, scene.view)
    member = masked(scene)
    if member is None:
        ledger.add("no_mask" if scene.regions else "no_regions", "boxes alone cannot tell what lies at a point")
        yield from ledger.drops()
        return
    limits = Limits(chosen.min_area, chosen.border, chosen.min_distance, chosen.pure)
    known = _Known(visible(scene, member, limits), chosen, rng)
    asker = Asker(NAME, VERSION, scene.view, rng)
    for skill in chosen.skills:
        made: set[str] = set()
        for _ in range(chosen.per_skill):
            draft = _MAKERS[skill](known)
            if isinstance(draft, str):
                ledger.add(draft.split(":")[0], f"{skill.value}: {draft}")
                continue
            qa = asker.ask(draft, WORDINGS[skill])
            if qa.qa_id not in made:
                made.add(qa.qa_id)
                yield qa
    yield from ledger.drops()


def recompute(provenance: Provenance) -> str:
    """From the stored names and colours alone."""
    measures = provenance.measures
    skill = Skill(text(measures["skill"]))
    if skill in (Skill.OBJECT_AT_MARK, Skill.COLOUR_AT_MARK):
        kind = "label_at" if skill is Skill.OBJECT_AT_MARK else "colour_at"
        return letter(provenance.options, text(mapping(measures[kind])[text(measures["mark"])]))
    if skill is Skill.MARK_ON_OBJECT:
        asked = text(measures["object"])
        marks = [mark for mark, label in mapping(measures["label_at"]).items() if label == asked]
        return letter(provenance.options, marks[0]) if len(marks) == 1 else ""
    if measures["complete"] is not True:
        return ""
    present = [(text(rows(pair)[0]), text(rows(pair)[1])) for pair in rows(measures["present"])]
    asked = text(measures["object"])
    if skill is Skill.OBJECT_COLOUR:
        colours = [colour for label, colour in present if label == asked]
        return letter(provenance.options, colours[0]) if len(colours) == 1 else ""
    colour = text(measures["colour"])
    there = any(label == asked and colour in ("", own) for label, own in present)
    return letter(provenance.options, "yes" if there else "no")


def _object_at_mark(known: _Known) -> Draft | str:
    places = known.two_places()
    if places is None:
        return "no_place: no two pure places apart from each other"
    mark, other = (("A", "B"), ("B", "A"))[int(known.rng.integers(2))]
    right = places[mark].label
    wrong = distractors(known.seen, right, places[other].label, known.options.stuff_share, known.rng)
    if len(wrong) < _N_OPTIONS - 1:
        return "small_vocabulary: fewer than four names"
    measures: dict[str, JsonValue] = {"mark": mark, "label_at": {m: p.label for m, p in places.items()}}
    return _draft(known, Skill.OBJECT_AT_MARK, (right, *wrong), measures, {"mark": mark}, places)


def _colour_at_mark(known: _Known) -> Draft | str:
    places = known.two_places(coloured=True)
    if places is None:
        return "no_colour: no two pure places on objects, one of them of known colour"
    marks = [m for m in ("A", "B") if places[m].colour]
    mark = marks[int(known.rng.integers(len(marks)))]
    right = places[mark].colour
    measures: dict[str, JsonValue] = {"mark": mark, "colour_at": {m: p.colour for m, p in places.items()}}
    options = (right, *_other_colours(known, right))
    return _draft(known, Skill.COLOUR_AT_MARK, options, measures, {"mark": mark}, places)


def _mark_on_object(known: _Known) -> Draft | str:
    places = known.two_places(differ=True)
    if places is None:
        return "no_place: no two pure places on things of different names"
    objects = [m for m in ("A", "B") if not places[m].stuff] or ["A", "B"]
    mark = objects[int(known.rng.integers(len(objects)))]
    asked = places[mark].label
    measures: dict[str, JsonValue] = {"object": asked, "label_at": {m: p.label for m, p in places.items()}}
    return _draft(known, Skill.MARK_ON_OBJECT, (mark,), measures, {"object": asked}, places)


def _object_colour(known: _Known) -> Draft | str:
    if not known.seen.member.complete:
        return "not_complete: whether there is another one is not known"
    labels = [spoken(r.label) for r in known.seen.member.items]
    fit = [r for r in known.seen.objects if r.attributes.get("colour") and labels.count(spoken(r.label)) == 1]
    if not fit:
        return "not_unique: no visible object of known colour is the only one of its name"
    region = fit[int(known.rng.integers(len(fit)))]
    right, asked = region.attributes["colour"], spoken(region.label)
    measures: dict[str, JsonValue] = {"object": asked, "present": present(known.seen), "complete": True}
    options = (right, *_other_colours(known, right))
    return _draft(known, Skill.OBJECT_COLOUR, options, measures, {"object": asked}, {})


def _existence(known: _Known) -> Draft | str:
    if not known.seen.member.complete:
        return "not_complete: what is not listed may still be there"
    visible_pairs = sorted({(spoken(r.label), r.attributes.get("colour", "")) for r in known.seen.objects})
    visible_pairs = [pair for pair in visible_pairs if not is_plural(pair[0])]
    if not visible_pairs:
        return "no_object: nothing is visible well enough"
    pair = visible_pairs[int(known.rng.integers(len(visible_pairs)))]
    answer = ("yes", "no")[int(known.rng.integers(2))]
    if answer == "no":
        absent = near_misses(known.seen, pair, known.options.colours)
        if not absent:
            return "nothing_absent: every near miss is in the picture"
        pair = absent[int(known.rng.integers(len(absent)))]
    label, colour = pair
    words = {"thing": with_article(f"{colour} {label}" if colour else label)}
    measures: dict[str, JsonValue] = {
        "object": label,
        "colour": colour,
        "present": present(known.seen),
        "complete": True,
    }
    return _draft(known, Skill.EXISTENCE, (answer, "no" if answer == "yes" else "yes"), measures, words, {})


def _other_colours(known: _Known, right: str) -> list[str]:
    pool = [colour for colour in known.options.colours if colour != right]
    return [pool[k] for k in known.rng.permutation(len(pool))[: _N_OPTIONS - 1]]


def _draft(
    known: _Known,
    skill: Skill,
    options: tuple[str, ...],
    measures: dict[str, JsonValue],
    words: dict[str, str],
    places: dict[str, Place],
) -> Draft:
    """The first of the options is the right one; they are shuffled, but marks stay in the order A, B."""
    order = ("A", "B") if skill is Skill.MARK_ON_OBJECT else shuffled(options, known.rng)
    marks = tuple(Mark(label=label, x=place.x, y=place.y) for label, place in places.items())
    if marks:
        measures["points_px"] = {mark.label: [mark.x, mark.y] for mark in marks}
    return Draft(
        skill=skill,
        options=order,
        right=options[0],
        panels=(Panel(image="view", marks=marks),),
        backends=tuple(member.backend for member in known.seen.scene.regions),
        measures=measures,
        difficulty=0.5,
        stratum=options[0] if skill is Skill.EXISTENCE else "any",
        words=words,
    )


_MAKERS: dict[Skill, Callable[[_Known], Draft | str]] = {
    Skill.OBJECT_AT_MARK: _object_at_mark,
    Skill.COLOUR_AT_MARK: _colour_at_mark,
    Skill.MARK_ON_OBJECT: _mark_on_object,
    Skill.OBJECT_COLOUR: _object_colour,
    Skill.EXISTENCE: _existence,
}

TASK = Task(
    name=NAME,
    version=VERSION,
    skills=tuple(WORDINGS),
    needs=(Need.REGIONS,),
    options=Options,
    generate=generate,
    recompute=recompute,
    wants=("a photo of several different objects", "a photo of objects in different colours"),
    twins=(Skill.MARK_ON_OBJECT,),
)
