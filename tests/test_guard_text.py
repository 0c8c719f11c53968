"""The guard's text rules: templates are nobody's, what stands in them is; canaries are found wherever they hide."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from synth import images
from synth.guard.building import build_index
from synth.guard.canaries import canaries_in_image
from synth.guard.cascade import Guard
from synth.guard.index import load_index, save_index
from synth.guard.survey import CertifiedRow, survey
from synth.guard.text import TextIndex, build_text
from synth.types import Item, Skill
from tests.scenes import picture_benchmark
from tests.test_pdq import structured

COLOURS = ["red", "green", "blue", "white", "black", "brown", "orange", "purple", "yellow", "grey", "pink", "silver"]
THINGS = ["sofa", "lamp", "chair", "table", "vase", "clock", "stool", "shelf", "rug", "plant", "piano", "bench"]
STORY = (
    "The lighthouse keeper placed seven copper lanterns beside the cracked marble stairs before dawn broke over the "
    "harbour walls"
)


def item(name: str, question: str, choices: tuple[str, ...] = ("yes", "no")) -> Item:
    prompt = f"{question}\nSelect from the following choices.\n" + "\n".join(f"(A) {c}" for c in choices)
    return Item(
        item_id=name,
        category="c",
        skill=Skill.OTHER,
        question=question,
        choices=choices,
        answer=None,
        prompt=prompt,
        images=(b"x",),
    )


@pytest.fixture(scope="module")
def text() -> TextIndex:
    """Thirty of one fixed question, 144 of a template with slots, two free-form ones."""
    fixed = [item(f"f{n}", "Which point is closer to the camera?", ("A is closer", "B is closer")) for n in range(30)]
    slots = [
        item(f"s{n}{m}", f"Is the {colour} {thing} behind the window of the room?")
        for n, colour in enumerate(COLOURS)
        for m, thing in enumerate(THINGS)
    ]
    free = [
        item("story", f"{STORY}. What did he do next?", ("slept", "sailed")),
        item("why", "Why would a fisherman tie an orange ribbon around his oar?", ("luck", "wind")),
    ]
    return build_text([*fixed, *slots, *free], b"0" * 16)


def test_a_template_is_disclosed_and_not_rejected(text: TextIndex) -> None:
    found = text.look("which point is CLOSER to the camera", ("A is closer", "B is closer"))
    assert (found.hit, found.same_wording) == (None, True)
    # Equal by chance: a template with other slots makes the same question again.
    again = text.look("Is the red sofa behind the window of the room?", ("yes", "no"))
    assert (again.hit, again.same_wording) == (None, True)
    other = text.look("Is the golden trumpet behind the window of the room?", ("yes", "no"))
    assert (other.hit, other.same_wording) == (None, False)
    assert text.look("Which of the two marks is farther away?", ("A", "B")) == text.look("Something else entirely?")


def test_a_question_of_the_benchmarks_own_is_a_hit_however_it_is_spelt(text: TextIndex) -> None:
    assert text.look("WHY would a fisherman tie an orange ribbon around his oar", ("rain", "snow")).hit == "question"
    assert text.look("Look. Why would a sailor tie an orange ribbon around a mast?", ("luck", "wind")).hit is None


def test_the_residual_is_compared_without_template_and_order_of_choices(text: TextIndex) -> None:
    wrapped = f"{STORY}. What did he do next?"
    assert text.look(wrapped, ("sailed", "slept")).hit == "question"
    # The same slots and choices inside a template of the benchmark leave the same residual.
    inside = f"Which point is closer to the camera? {STORY}. What did he do next?"
    assert text.look(inside, ("sailed", "slept")).hit in ("residual", "13-gram")
    quoted = f"Please read this first: {STORY}! Is that so?"
    assert text.look(quoted, ("yes", "no")).hit == "13-gram"
    short = " ".join(STORY.split()[:12])
    assert text.look(f"Please read: {short}. Is that so?", ("yes", "no")).hit is None


def test_little_content_is_never_compared() -> None:
    text = build_text(
        [item("x", "Where is it and what is it for?"), *[item(f"{n}", f"No {n}") for n in range(20)]], b"k"
    )
    assert text.look("So where is it and what is it for, now?").hit is None


def test_the_index_holds_no_word_of_the_questions_and_survives_the_disk(tmp_path: Path) -> None:
    data = picture_benchmark({f"p{n}": images.encode_png(structured(n)) for n in range(3)})
    asked = tuple(item(f"i{n}", f"{STORY} number {n}?") for n in range(3))
    items = tuple(
        Item(**{**vars(one), "question": q.question, "prompt": q.prompt, "choices": q.choices})
        for one, q in zip(data.items, asked, strict=True)
    )
    index = build_index(type(data)(name="b", revision="", items=items))
    path = tmp_path / "i.npz"
    save_index(index, path)
    assert b"lighthouse" not in path.read_bytes()
    again = load_index(path)
    assert again.sha256 == index.sha256
    assert again.text.look(f"{STORY} number 2?", ("yes", "no")) == index.text.look(f"{STORY} number 2?", ("yes", "no"))
    # The salt comes from the pictures: equal questions of another benchmark have other hashes.
    other = build_text(items, b"another salt 123")
    assert not set(index.text.questions.tolist()) & set(other.questions.tolist())


def test_a_survey_counts_own_questions_and_shared_wording(text: TextIndex) -> None:
    data = picture_benchmark({"p": images.encode_png(structured(1))})
    index = build_index(type(data)(name="b", revision="", items=(data.items[0],)))
    rows = [
        CertifiedRow(sample_id="1", task="t", images=(), question=data.items[0].question, choices=("a",)),
        CertifiedRow(sample_id="2", task="t", images=(), question="Something in our own words, is it not?"),
    ]
    found = survey(rows, index)
    assert found.overlap == {"t": (2, 1)}
    assert found.text_hits == ("1: question",)


# ------------------------------------------------------------------------------------------------------------ canaries


def picture(fmt: str, **saved: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(structured(1, 64, 64)).save(buffer, fmt, **saved)
    return buffer.getvalue()


def hidden() -> dict[str, bytes]:
    wide = Image.Exif()
    wide[0x9C9C] = "see val_Jigsaw_9".encode("utf-16-le")
    texts = PngImagePlugin.PngInfo()
    raw = b"Exif\x00\x00 comment test_IQ_Test_3".hex()
    texts.add_text("Raw profile type exif", f"\nexif\n {len(raw) // 2}\n{raw}\n", zip=True)
    xmp = PngImagePlugin.PngInfo()
    xmp.add_itxt("XML:com.adobe.xmp", "<x>canary GUID 1</x>", zip=True)
    return {
        "utf-16 exif": picture("JPEG", exif=wide),
        "jpeg comment": picture("JPEG", comment="val_Counting_12"),
        "jpeg xmp": picture("JPEG", xmp=b"<x>Canary GUID 26b5</x>"),
        "webp xmp": picture("WEBP", xmp=b"<x>canary guid 26b5</x>"),
        "png raw profile": picture("PNG", pnginfo=texts),
        "png compressed xmp": picture("PNG", pnginfo=xmp),
    }


@pytest.mark.parametrize("place", sorted(hidden()))
def test_a_canary_is_found_in(place: str) -> None:
    assert list(canaries_in_image(hidden()[place]))


def test_a_canary_or_a_benchmarks_id_makes_an_image_a_hit() -> None:
    guard = Guard(build_index(picture_benchmark({"p": images.encode_png(structured(1))})))
    for data, name in ((hidden()["jpeg comment"], ""), (images.encode_png(structured(50)), "x/val_Counting_12.png")):
        found = guard.check_file(data, name=name)
        assert (found.verdict, found.stage, found.evidence["canary"]) == ("copy", "metadata", "val_Counting_12")
    # The same pixels without the mark are judged anew.
    assert guard.check_file(images.encode_png(structured(50)), name="x/counting_12.png").verdict == "clean"
    assert guard.check_file(picture("JPEG", comment="interval_Counting_12")).stage != "metadata"


def test_random_bytes_are_no_canary() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()
    assert not list(canaries_in_image(noise))


def test_a_template_with_options_that_nobody_else_has_is_still_a_template() -> None:
    options = [(f"{colour} {thing}", f"{thing} of {colour}") for colour in COLOURS for thing in THINGS[:4]]
    items = [item(str(n), "What is at mark A?", choices) for n, choices in enumerate(options)]
    found = build_text(items, b"k").look(items[7].question, items[7].choices, items[7].prompt)
    assert (found.hit, found.same_wording) == (None, True)
