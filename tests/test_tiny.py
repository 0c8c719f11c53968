"""The built-in VLM: loads like any other, knows the project's words, and was asked what its README says, no more."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from finetune.tiny import wordings as w
from finetune.tiny.build import DECODER_LAYERS, IMAGE_SIDE
from finetune.tiny.frames import IGNORED, PATCHES, Picture, Placed, augment, patch_labels, place_marks
from finetune.tiny.heldout import UNTAUGHT, make_items
from finetune.tiny.packing import Packer, Sample
from finetune.tiny.pretrain import HELD_OUT, POOL
from finetune.tiny.questions import SEMANTIC, Question, Style, ask
from finetune.tiny.sampling import pixel_values, sample_picture
from synth.rooms.compose import STRUCTURE
from synth.types import LETTERS, Skill

BASE = Path(__file__).resolve().parents[1] / "finetune" / "tiny" / "base"
WORDS_OF_PERCEPTION = re.compile(
    r"close|near|far|depth|distan|front|behind|viewer|camera|left|right|how many|count|number|first|second|same",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def loaded():
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_pretrained(BASE, dtype=torch.float32).eval()
    return model, AutoProcessor.from_pretrained(BASE)


def made_picture(seed: int, side: int = IMAGE_SIDE) -> Picture:
    """A room as the sampler sees one, without a renderer: blocks of colour on wall and floor, at known places."""
    rng = np.random.default_rng(seed)
    names, colours = list(STRUCTURE), [""] * len(STRUCTURE)
    ids = np.full((side, side), STRUCTURE.index("wall"), dtype=np.int16)
    ids[side // 2 :] = STRUCTURE.index("floor")
    depth = np.linspace(6, 1, side, dtype=np.float32)[:, None].repeat(side, 1)
    for slot in range(int(rng.integers(3, 8))):
        x, y = (slot % 4) * 32 + int(rng.integers(0, 6)), (slot // 4) * 64 + int(rng.integers(8, 30))
        width, height = (int(v) for v in rng.integers(4, 26, 2))
        ids[y : y + height, x : x + width] = len(names)
        depth[y : y + height, x : x + width] = rng.uniform(1, 4)
        names.append(str(rng.choice(w.OBJECTS[:6])))
        colours.append(str(rng.choice(w.COLOURS)))
    rgb = rng.integers(0, 255, (len(names), 3)).astype(np.uint8)[ids]
    return Picture(seed=seed, view=0, rgb=rgb, depth=depth, ids=ids, names=tuple(names), colours=tuple(colours))


def questions(skill: Skill, n: int, style: Style) -> list[tuple[Picture, dict[str, Placed], Question]]:
    """n questions of one skill over made pictures."""
    found = []
    for seed in range(40 * n):
        rng = np.random.default_rng([seed, SEMANTIC.index(skill)])
        picture = augment(made_picture(seed), rng)
        placed = place_marks(picture, "ABCD"[: int(rng.integers(2, 5))], 100, rng)
        question = ask(skill, picture, placed, style, rng)
        if question is not None:
            found.append((picture, placed, question))
        if len(found) == n:
            return found
    raise AssertionError(f"only {len(found)} questions of {skill}")


# -------------------------------------------------------------------------------------------------------- the folder


def test_folder_is_small_and_complete() -> None:
    files = {path.name: path.stat().st_size for path in BASE.iterdir()}
    assert sum(files.values()) <= 6_000_000
    assert {"model.safetensors", "config.json", "tokenizer.json", "training.json"} <= set(files)


def test_loads_with_the_auto_classes(loaded) -> None:
    from transformers import LlavaForConditionalGeneration, LlavaProcessor

    model, processor = loaded
    assert isinstance(model, LlavaForConditionalGeneration)
    assert isinstance(processor, LlavaProcessor)
    assert 2.4e6 < sum(p.numel() for p in model.parameters()) < 2.6e6
    assert len(model.get_decoder().layers) == DECODER_LAYERS
    assert model.get_decoder() is model.model.language_model


def test_weights_are_bf16_and_finite() -> None:
    import torch
    from safetensors.torch import load_file

    weights = load_file(BASE / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}
    assert all(torch.isfinite(value).all() for value in weights.values())


def test_build_is_repeatable_and_its_words_are_those_of_the_folder(loaded) -> None:
    import torch

    from finetune.tiny.build import build

    (first, processor), (second, _) = build(3), build(3)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    other, _ = build(4)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
    assert processor.tokenizer.get_vocab() == loaded[1].tokenizer.get_vocab()


def test_generates_a_letter_for_any_image_size(loaded) -> None:
    from PIL import Image

    model, processor = loaded
    content = [{"type": "image", "image": Image.new("RGB", (500, 300))}, {"type": "text", "text": "Can you see a box?"}]
    content[1]["text"] += "\n(A) yes\n(B) no"
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        add_generation_prompt=True,
    )
    out = model.generate(**inputs, max_new_tokens=4, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert processor.decode(out, skip_special_tokens=True).strip() in {"A", "B"}


def test_training_record_is_whole() -> None:
    record = json.loads((BASE / "training.json").read_text())
    assert record["finished"] is True
    assert record["depth_head"] is True
    skills = record["held_out"]["skills"]
    assert set(skills) == {skill.value for skill in (*SEMANTIC, *UNTAUGHT)}
    assert {name for name, score in skills.items() if score["taught"]} == {skill.value for skill in SEMANTIC}
    for phase in record["phases"]:
        assert phase["steps_done"] > 0
        assert phase["seconds"] > 0
    for name in (skill.value for skill in UNTAUGHT):
        spread = 4 * (skills[name]["chance"] * (1 - skills[name]["chance"]) / skills[name]["n"]) ** 0.5
        assert abs(skills[name]["accuracy"] - skills[name]["chance"]) < spread, f"{name} is not at chance"
    text = (BASE.parent / "README.md").read_text()
    for name, score in skills.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
        assert f"| {score['n']} | {score['accuracy']:.3f} | {score['chance']:.3f} |" in line


# --------------------------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize(
    "text",
    [
        *(template.format(plural="chairs") for template in w.PERCEPTION),
        "Which point is closer to the camera?\n(A) A is closer\n(B) B is closer",
        "Which of the two marked points is nearer to the camera?\n(A) point A\n(B) point B",
        "Points A and B are marked. Which one is closest to the viewer?\n(A) A\n(B) B",
        "Which mark lies at the smaller distance from the camera?\n(A) mark A is nearer\n(B) mark B is nearer",
        "The photo shows two marks. Which is in front of the other, seen from the camera?\n(A) mark A\n(B) mark B",
        "Which mark is further to the left in the image?\n(A) A is further left\n(B) B is further left",
        "How many chairs are there?\n(A) 0\n(B) 1\n(C) 2\n(D) 3",
        "Count the vases: how many are visible in the picture?\n(A) 4\n(B) 1\n(C) 2\n(D) 3",
        "A point is marked REF in the first image. Which point of the second image shows the same place?\n(A) A\n(B) B",
    ],
)
def test_every_word_of_the_wordings_is_known(loaded, text: str) -> None:
    tokenizer = loaded[1].tokenizer
    ids = tokenizer(text, add_special_tokens=False).input_ids
    pieces = re.findall(r"'s| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s", text)
    assert len(ids) < 60
    assert len(ids) <= len(pieces) + 2, "words fall apart into bytes"


@pytest.mark.parametrize("skill", SEMANTIC)
def test_questions_are_short_in_tokens_and_put_in_several_ways(loaded, skill: Skill) -> None:
    tokenizer = loaded[1].tokenizer
    ways = Counter()
    for _, _, question in questions(skill, 120, Style(lettered=1.0, instructed=0.3)):
        assert len(tokenizer(question.text).input_ids) < 60
        first = question.text.split("\n")[0]
        for word in (*w.NAMES, *w.COLOURS):
            first = re.sub(rf"\b{word}\b", "_", first)
        ways[re.sub(r"\b[ABCD]\b|\ban?\b", "_", first)] += 1
    assert len(ways) >= 4


@pytest.mark.parametrize("task", ["relative_depth", "left_right", "counting", "visual_correspondence", "recognition"])
def test_questions_of_the_tasks_stay_short(loaded, task: str) -> None:
    """The tasks were worded apart from the tokenizer: unknown words may be spelt, but no question may run away."""
    import importlib

    words = importlib.import_module(f"synth.tasks.{task}").WORDINGS
    plain = words if isinstance(words, tuple) else tuple(entry for group in words.values() for entry in group)
    for wording in plain:
        text = re.sub(r"\{[a-z]*\}", "chairs", wording.question)
        assert len(loaded[1].tokenizer(text).input_ids) < 60, text


# ----------------------------------------------------------------------------------------------------- the questions


def answer_text(question: Question) -> str:
    """The right option's text, or the one-word answer."""
    if not question.options:
        return question.answer
    lines = dict(re.findall(r"^\(([A-Z])\) (.+)$", question.text, re.MULTILINE))
    assert len(set(lines.values())) == len(lines)
    return lines[question.answer]


def seen(picture: Picture) -> list[tuple[str, str, int]]:
    """(name, colour, visible pixels) of every object, counted here from the ids."""
    return [
        (picture.names[i], picture.colours[i], int((picture.ids == i).sum()))
        for i in range(len(picture.names))
        if picture.names[i] not in STRUCTURE
    ]


@pytest.mark.parametrize("lettered", [0.0, 1.0])
@pytest.mark.parametrize("skill", [Skill.OBJECT_AT_MARK, Skill.COLOUR_AT_MARK])
def test_answers_at_marks_are_what_the_ids_say(skill: Skill, lettered: float) -> None:
    for picture, placed, question in questions(skill, 60, Style(lettered=lettered)):
        (mark,) = re.findall(r"\b([ABCD])\b", question.text.split("\n")[0])
        instance = picture.ids[placed[mark].y, placed[mark].x]
        table = picture.names if skill is Skill.OBJECT_AT_MARK else picture.colours
        assert answer_text(question) == table[instance]
        assert len(question.options) == (4 if lettered else 0)


def test_answers_about_which_mark_are_what_the_ids_say() -> None:
    for picture, placed, question in questions(Skill.MARK_ON_OBJECT, 80, Style()):
        first = question.text.split("\n")[0]
        (word,) = [word for word in (*w.NAMES, *w.COLOURS) if re.search(rf"\b{word}\b", first)]
        on = {mark: picture.ids[spot.y, spot.x] for mark, spot in placed.items()}
        fits = [m for m, i in on.items() if word in (picture.names[i], picture.colours[i])]
        assert fits == [question.answer]
        assert answer_text(question).split()[-1] == question.answer


def test_answers_about_the_colour_of_a_single_object() -> None:
    for picture, _, question in questions(Skill.OBJECT_COLOUR, 60, Style()):
        (name,) = [n for n in w.OBJECTS if re.search(rf"\b{n}\b", question.text)]
        (colour,) = [c for n, c, pixels in seen(picture) if n == name and pixels > 0]
        assert answer_text(question) == colour


@pytest.mark.parametrize("nouns", [0.0, 1.0])
def test_answers_about_existence(nouns: float) -> None:
    answers = Counter()
    for picture, _, question in questions(Skill.EXISTENCE, 200, Style(nouns=nouns)):
        first = question.text.split("\n")[0]
        # Not any object's name: one is "picture", which "visible in the picture" has too.
        ((colour, name),) = re.findall(rf"\ban? (?:({'|'.join(w.COLOURS)}) )?({'|'.join(w.OBJECTS)})\b", first)
        named = [colour] if colour else []
        alike = [pixels for n, c, pixels in seen(picture) if n == name and (not named or c == named[0])]
        answer = answer_text(question)
        answers[answer] += 1
        assert max(alike, default=0) > 100 if answer == "yes" else sum(alike) == 0
        assert bool(named) == (nouns == 0.0)
        article = re.search(r"\b(an?) (\w+)", first)
        assert article is not None
        assert (article[1] == "an") == (article[2][0] in "aeiou")
    assert 0.35 < answers["yes"] / answers.total() < 0.65


def test_spans_of_the_auxiliary_losses_point_at_their_words() -> None:
    for skill in SEMANTIC:
        for _, _, question in questions(skill, 25, Style(instructed=0.5)):
            for reference in question.references:
                assert question.text.startswith(reference.mark or reference.name or reference.colour, reference.at)
            for letter, option in zip(LETTERS, question.options, strict=False):
                assert question.text[option.letter_at] == letter
                assert question.text[: option.word_at].endswith((f"({letter}) ", " mark ", " point "))
            if question.sought is not None:
                assert question.text.startswith(question.sought.name, question.sought.at)


def test_pretraining_asks_nothing_about_perception() -> None:
    pool = [made_picture(seed) for seed in range(12)]
    skills = Counter()
    for step in range(250):
        rng = np.random.default_rng(step)
        for question in sample_picture(pool, step / 250, rng, asks=True).questions:
            skills[question.skill] += 1
            assert not WORDS_OF_PERCEPTION.search(question.text.replace("right option", "")), question.text
    assert set(skills) == set(SEMANTIC)
    assert min(skills.values()) > 0.05 * skills.total()
    assert all(WORDS_OF_PERCEPTION.search(text) for text in w.PERCEPTION if "higher" not in text and "spot" not in text)
    with pytest.raises(KeyError):
        ask(Skill.RELATIVE_DEPTH, pool[0], {}, Style(), np.random.default_rng(0))


def test_attention_in_float32_gives_what_plain_attention_gives(loaded) -> None:
    import torch
    import torch.nn.functional as F

    from finetune.precision import float32_attention

    model, _ = loaded
    plain = F.scaled_dot_product_attention
    ids = torch.arange(10, 40)[None]
    with torch.inference_mode():
        expected = model(input_ids=ids).logits
        with float32_attention(True):
            assert F.scaled_dot_product_attention is not plain
            assert torch.equal(model(input_ids=ids).logits, expected)
            with torch.autocast("cpu", torch.bfloat16):
                rough = model(input_ids=ids).logits
    assert F.scaled_dot_product_attention is plain
    assert (rough.float() - expected).abs().max() < 0.1 * expected.abs().max()


def test_a_killed_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    import torch

    from finetune.tiny.pretrain import Phase, Run, Settings, train

    def run(name: str, steps: int) -> Run:
        shared = {"minutes": float("inf"), "pictures": 2, "rate": 1e-3, "tower_factor": 1.0}
        phases = (
            Phase(name="vision", steps=2, asks=False, **shared),
            Phase(name="all", steps=steps, asks=True, **shared),
        )
        settings = Settings(
            frames=tmp_path,
            out=tmp_path / name,
            checkpoint=tmp_path / f"{name}.pt",
            seed=0,
            threads=1,
            depth_head=True,
            phases=phases,
            held_out=0,
        )
        made = Run(settings)
        made.pool = [made_picture(seed) for seed in range(4)]
        return made

    whole, half = run("whole", 3), run("half", 3)
    train(whole)
    for _ in range(2):
        half.train_step()
    half.phase, half.step = 1, 0
    half.train_step()
    half.save_checkpoint()
    resumed = run("half", 3)
    resumed.load_checkpoint()
    assert (resumed.phase, resumed.step) == (1, 1)
    train(resumed)
    pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    fresh = run("fresh", 3)
    assert not torch.equal(fresh.model.lm_head.weight, whole.model.lm_head.weight)


def test_held_out_rooms_are_not_trained_on() -> None:
    assert not set(POOL) & set(HELD_OUT)


def test_held_out_depth_items_are_right_and_balanced() -> None:
    pictures = [made_picture(seed) for seed in range(40)]
    items = make_items(pictures, 24, seed=0)
    depth = items[Skill.RELATIVE_DEPTH]
    assert Counter(item.answer for item in depth) == {"A": 12, "B": 12}
    assert Counter(item.answer for item in items[Skill.COUNTING])["A"] == 6
    assert make_items(pictures, 24, seed=0)[Skill.LEFT_RIGHT][0].text == items[Skill.LEFT_RIGHT][0].text


# -------------------------------------------------------------------------------------------------- pictures, packing


def test_augmentation_keeps_pixels_and_truth_together() -> None:
    for seed in range(20):
        picture = made_picture(seed)
        changed = augment(picture, np.random.default_rng(seed))
        assert changed.rgb.shape == picture.rgb.shape
        assert changed.ids.shape == changed.depth.shape == picture.ids.shape
        flat = [i for i in range(len(picture.names)) if (changed.ids == i).sum() > 400]
        for instance in flat:
            inside = changed.ids == instance
            core = inside[2:-2, 2:-2] & inside[:-4, 2:-2] & inside[4:, 2:-2] & inside[2:-2, :-4] & inside[2:-2, 4:]
            shades = changed.rgb[2:-2, 2:-2][core].astype(int)
            # Each made instance has one colour: were pixels and ids moved apart, several would mix.
            assert len(shades) == 0 or np.ptp(np.median(shades, axis=0) - shades, axis=0).max() <= 60


def test_patch_labels_against_counting() -> None:
    picture = made_picture(1)
    rng = np.random.default_rng(0)
    placed = place_marks(picture, ["A", "REF"], 50, rng)
    labels = patch_labels(picture, placed)
    size = IMAGE_SIDE // PATCHES
    for patch in range(PATCHES * PATCHES):
        row, column = divmod(patch, PATCHES)
        block = picture.ids[row * size : (row + 1) * size, column * size : (column + 1) * size]
        owner, pixels = Counter(block.ravel().tolist()).most_common(1)[0]
        expected = w.NAMES.index(picture.names[owner]) if pixels > 0.55 * size * size else IGNORED
        assert labels.name[patch] == expected
        marks = [m for m, spot in placed.items() if (spot.y // size, spot.x // size) == (row, column)]
        assert labels.mark[patch] == (1 + w.MARKS.index(marks[0]) if marks else 0)
        if marks:
            assert labels.name_under[patch] == w.NAMES.index(picture.names[placed[marks[0]].instance])
    assert abs(float(np.nanmean(labels.log_depth))) < 1e-5


def test_packed_questions_equal_single_prompts(loaded) -> None:
    """Tokens are those of the processor, and the logits agree to 1e-4."""
    import torch
    from PIL import Image

    from finetune.tiny.losses import attention_bias

    model, processor = loaded
    pool = [made_picture(seed) for seed in range(4)]
    rng = np.random.default_rng(5)
    samples: list[Sample] = [sample_picture(pool, 0.6, rng, asks=True) for _ in range(2)]
    packer = Packer(processor)
    packed = packer.pack(samples)
    with torch.inference_mode():
        tokens = model.model.vision_tower(pixel_values(samples), output_hidden_states=True).hidden_states[-1]
        embedded = model.get_input_embeddings()(packed.input_ids)
        slots = (packed.input_ids == model.config.image_token_id)[..., None].expand_as(embedded)
        embedded = embedded.masked_scatter(slots, model.model.multi_modal_projector(tokens))
        hidden = model.get_decoder()(
            inputs_embeds=embedded,
            attention_mask=attention_bias(packed.visible),
            position_ids=packed.position_ids,
            use_cache=False,
        ).last_hidden_state
        logits = model.lm_head(hidden)
        for row, sample in enumerate(samples):
            start = len(packer.prefix)
            for question in sample.questions:
                ids, length, _ = packer.encode(question)
                content = [
                    {"type": "image", "image": Image.fromarray(sample.rgb)},
                    {"type": "text", "text": question.text},
                ]
                single = processor.apply_chat_template(
                    [{"role": "user", "content": content}],
                    tokenize=True,
                    return_dict=True,
                    return_tensors="pt",
                    add_generation_prompt=True,
                )
                assert single["input_ids"][0].tolist() == packer.prefix + ids[:length]
                alone = model(**single).logits[0, -1]
                assert (alone - logits[row, start + length - 1]).abs().max() < 1e-4
                answer = packed.labels[row, start + length : start + len(ids)]
                assert processor.tokenizer.decode(answer).strip() == f"{question.answer}<end_of_utterance>"
                start += len(ids)


def test_pointer_loss_is_the_attention_that_the_decoder_pays(loaded) -> None:
    """Against the attention weights that transformers returns with the eager implementation."""
    import torch

    from finetune.tiny import losses

    model, processor = loaded
    pool = [made_picture(seed) for seed in range(4)]
    rng = np.random.default_rng(9)
    samples = [sample_picture(pool, 0.6, rng, asks=True) for _ in range(2)]
    packed = Packer(processor).pack(samples)
    decoder = model.get_decoder()
    bias = losses.attention_bias(packed.visible)
    embedded = model.get_input_embeddings()(packed.input_ids)
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode(), losses._projections(decoder) as projected:
            out = decoder(
                inputs_embeds=embedded,
                attention_mask=bias,
                position_ids=packed.position_ids,
                use_cache=False,
                output_attentions=True,
            )
            rotary = decoder.rotary_emb(embedded, packed.position_ids)
            for pointer in packed.pointers:
                weights = out.attentions[pointer.layer][pointer.rows, :, pointer.queries][:, list(pointer.heads)]
                expected = -(weights * pointer.targets[:, None]).sum(-1).clamp_min(1e-30).log().mean()
                loss = losses._pointer_loss(projected[pointer.layer], rotary, bias, pointer)
                assert float(loss) == pytest.approx(float(expected), rel=1e-3, abs=1e-3)
    finally:
        model.set_attn_implementation("sdpa")
