"""Scoring: letters in context, padding, batches, images; and evaluation as outcomes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from finetune.evaluate import EvaluateOptions, evaluate
from finetune.loading import VisionLanguageModel, load_model, option_ids, threads
from finetune.score import Question, batch_of, option_spellings, score
from synth.contracts import BenchmarkData
from synth.diagnosis.reading import load_outcomes
from synth.errors import BackendError, BenchmarkError, S2PError
from synth.types import Item, Skill
from tests.small_vlms import CHATML_TEMPLATE, TURN_TEMPLATE, colour_rows, png, questions, small_llava, small_qwen


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vlms")
    return {"llava": small_llava(root / "llava"), "qwen": small_qwen(root / "qwen")}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, VisionLanguageModel]:
    return {name: load_model(str(folder)) for name, folder in folders.items()}


def mixed_questions() -> list[Question]:
    """Different lengths, options, sizes and numbers of images."""
    asked = questions(colour_rows(9))
    long = Question(
        item_id="long", text="Which colour? " * 9 + "\n(A) a\n(B) b", images=(png((9, 200, 9), 60, 40),), n_options=2
    )
    four = Question(item_id="four", text="How many?\n(A) 0\n(B) 1\n(C) 2\n(D) 3", images=(png((9, 9, 9)),), n_options=4)
    blind = Question(item_id="blind", text="Which?\n(A) a\n(B) b", images=(), n_options=2)
    return [long, *asked, four, blind]


@pytest.mark.parametrize(("name", "text"), [("llava", " {}"), ("qwen", "{}")])
def test_option_ids_are_those_of_the_answer_in_its_place(models, name: str, text: str) -> None:
    tokenizer = models[name].processor.tokenizer
    ids = option_ids(models[name].processor, 4)
    assert {letter: tokenizer.decode([i]) for letter, i in ids.items()} == {x: text.format(x) for x in "ABCD"}
    if name == "llava":  # the trap: a letter alone is another token than the answer
        assert tokenizer.convert_tokens_to_ids("A") != ids["A"]


@pytest.mark.parametrize("name", ["llava", "qwen"])
def test_a_letter_is_known_by_all_its_single_tokens(models, name: str) -> None:
    tokenizer = models[name].processor.tokenizer
    spellings = option_spellings(models[name].processor, 4)
    in_context = option_ids(models[name].processor, 4)
    for letter, ids in spellings.items():
        assert ids[0] == in_context[letter], "the template's own spelling leads"
        assert {tokenizer.decode([i]) for i in ids} == {letter, f" {letter}"}
    assert len({i for ids in spellings.values() for i in ids}) == 8, "no token counts for two letters"


def test_a_template_that_drops_an_image_is_refused(models) -> None:
    loaded = models["llava"]
    first_only = TURN_TEMPLATE.replace(
        "'image' %}<image>{% else %}", "'image' %}{% if loop.first %}<image>{% endif %}{% else %}"
    )
    asked = questions(colour_rows(3))[2]
    assert len(asked.images) == 2
    processor = load_model(loaded.name).processor
    processor.chat_template = first_only
    with pytest.raises(BackendError, match="shows 1 of 2 images"):
        batch_of(replace(loaded, processor=processor), [asked])


def test_images_reach_the_model_in_their_order(models) -> None:
    import torch

    asked = replace(questions(colour_rows(1))[0], images=(png((250, 0, 0)), png((0, 0, 250))))
    alone = [batch_of(models["llava"], [replace(asked, images=(image,))])["pixel_values"] for image in asked.images]
    assert not torch.equal(alone[0], alone[1])
    assert torch.equal(batch_of(models["llava"], [asked])["pixel_values"], torch.cat(alone))


def test_letters_behind_a_shared_token_are_refused(folders) -> None:
    processor = load_model(str(folders["qwen"])).processor
    processor.chat_template = CHATML_TEMPLATE.replace("{{ c['text'] }}", "{{ '\n' + c['text'] }}")
    with pytest.raises(S2PError, match="do not differ in their first token"):
        option_ids(processor, 2)


def test_a_template_that_does_not_continue_its_prompt_is_refused(folders) -> None:
    processor = load_model(str(folders["llava"])).processor
    processor.chat_template = TURN_TEMPLATE.replace("%}Assistant:{%", "%}Assistant: <think>{%")
    with pytest.raises(S2PError, match="does not continue its own prompt"):
        option_ids(processor, 2)


@pytest.mark.parametrize("name", ["llava", "qwen"])
def test_batches_do_not_change_scores(models, name: str) -> None:
    asked = mixed_questions()
    alone = score(models[name], asked, batch_size=1)
    together = score(models[name], asked, batch_size=5)
    assert [s.item_id for s in together] == [q.item_id for q in asked]
    for a, b in zip(alone, together, strict=True):
        assert a.letter == b.letter
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-5)
    assert all(0 < s.mass < 1 for s in alone)
    assert list(alone[10].probabilities) == list("ABCD")


def test_padding_is_on_the_left_whatever_was_saved(models) -> None:
    loaded = models["llava"]
    assert loaded.processor.tokenizer.padding_side == "right"
    short, long = mixed_questions()[1], mixed_questions()[0]
    mask = batch_of(loaded, [short, long])["attention_mask"]
    assert mask[0, 0] == 0
    assert bool(mask[:, -1].all())


def test_probabilities_are_those_of_a_plain_forward_pass(models) -> None:
    import torch

    loaded = models["qwen"]
    question = mixed_questions()[0]
    batch = batch_of(loaded, [question])
    with torch.no_grad():
        logits = loaded.model(**batch).logits[0, -1].double()
    expected = torch.softmax(logits, -1)
    ids = option_spellings(loaded.processor, 2)
    found = score(loaded, [question])[0]
    assert found.probabilities == pytest.approx({x: float(expected[list(ids[x])].sum()) for x in "AB"}, rel=1e-4)
    assert found.margin == pytest.approx(abs(found.probabilities["A"] - found.probabilities["B"]))


def test_pictures_matter(models) -> None:
    question = questions(colour_rows(1))[0]
    red, blue = (replace(question, images=(png(colour),)) for colour in ((250, 0, 0), (0, 0, 250)))
    a, b = score(models["llava"], [red, blue])
    assert abs(a.probabilities["A"] - b.probabilities["A"]) > 1e-6


def test_what_cannot_be_asked_is_named(models) -> None:
    question = mixed_questions()[1]
    with pytest.raises(BenchmarkError, match=r"item qa-0000: an image cannot be used: unknown_format"):
        score(models["llava"], [replace(question, images=(b"not an image",))])
    with pytest.raises(BenchmarkError, match="1 options"):
        score(models["llava"], [replace(question, n_options=1)])


def test_missing_folders_are_explained(tmp_path: Path, folders) -> None:
    with pytest.raises(BackendError, match="cannot load the model"):
        load_model(str(tmp_path / "nowhere"))
    with pytest.raises(BackendError, match=r"no adapter_config\.json"):
        load_model(str(folders["llava"]), tmp_path)


def test_threads_are_restored() -> None:
    import torch

    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


# ------------------------------------------------------------------------------------------------------- evaluation


def benchmark(n: int = 20) -> BenchmarkData:
    items = []
    for i, (row, question) in enumerate(zip(colour_rows(n, seed=7), questions(colour_rows(n, seed=7)), strict=True)):
        items.append(
            Item(
                item_id=f"val_{i}",
                category="Colour",
                skill=Skill.COLOUR_AT_MARK,
                question=row["question"],
                choices=tuple(row["choices"]),
                answer=None if i == 4 else row["answer"],
                prompt=question.text + "\nAnswer with the letter.",
                images=question.images,
                group=f"photo-{i // 2}",
                tags={"bright": "yes" if i % 2 else "no"},
            )
        )
    return BenchmarkData(name="colours", revision="1", items=tuple(items))


def test_outcomes_carry_what_diagnosis_and_comparison_need(tmp_path: Path, folders) -> None:
    data = benchmark()
    outcomes = evaluate(str(folders["llava"]), None, data, tmp_path / "run" / "outcomes.jsonl")
    assert load_outcomes(tmp_path / "run") == outcomes
    assert [o.item_id for o in outcomes] == [item.item_id for item in data.items]
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["outcomes.jsonl"]
    first = outcomes[0]
    assert first.text == first.letter == max(first.probabilities, key=lambda x: first.probabilities[x])
    assert first.option_mass == pytest.approx(sum(first.probabilities.values()))
    row = json.loads((tmp_path / "run" / "outcomes.jsonl").read_text().splitlines()[0])
    assert (row["option_mass"], row["margin"]) == (first.option_mass, first.margin)
    assert len(first.prompt_hash) == 16
    assert first.correct == (first.letter == data.items[0].answer)
    assert (first.group, first.tags, first.model) == ("photo-0", {"bright": "no"}, str(folders["llava"]))
    hidden = outcomes[4]
    assert (hidden.gold, hidden.correct, hidden.reason) == (None, None, "unscored")


def test_a_killed_evaluation_goes_on(tmp_path: Path, folders, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = benchmark(), tmp_path / "outcomes.jsonl"
    options = EvaluateOptions(batch_size=4)
    whole = evaluate(str(folders["llava"]), None, data, tmp_path / "whole.jsonl", options)

    def killed(done: int, total: int) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(str(folders["llava"]), None, data, out, options, killed)
    assert not out.exists()
    with (tmp_path / ".outcomes.jsonl.part").open("a") as journal:
        journal.write('{"item_id": "val_1')  # the line that was being written
    asked = []
    import finetune.respondents as module

    real = module.iterate

    def counted(loaded, todo, **options):
        asked.extend(question.item_id for question in todo)
        return real(loaded, todo, **options)

    monkeypatch.setattr(module, "iterate", counted)
    again = evaluate(str(folders["llava"]), None, data, out, options)
    assert len(asked) == 12
    for a, b in zip(whole, again, strict=True):
        assert a.letter == b.letter
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-6)


def test_a_journal_of_another_benchmark_is_thrown_away(tmp_path: Path, folders) -> None:
    (tmp_path / ".outcomes.jsonl.part").write_text(
        'someone-else\n{"item_id": "val_0", "text": "B", "probabilities": {"A": 0.1, "B": 0.9}}\n'
    )
    outcomes = evaluate(str(folders["llava"]), None, benchmark(4), tmp_path / "outcomes.jsonl")
    assert not np.isclose(outcomes[0].probabilities["B"], 0.9)


def test_the_benchmarks_own_wording_can_be_asked_for(tmp_path: Path, folders) -> None:
    ours = evaluate(str(folders["llava"]), None, benchmark(4), tmp_path / "a.jsonl")
    theirs = evaluate(
        str(folders["llava"]), None, benchmark(4), tmp_path / "b.jsonl", EvaluateOptions(wording="benchmark")
    )
    assert ours[0].probabilities != pytest.approx(theirs[0].probabilities, rel=1e-3)


def test_a_benchmark_with_one_id_twice_is_refused(tmp_path: Path, folders) -> None:
    data = benchmark(4)
    with pytest.raises(BenchmarkError, match="two items"):
        evaluate(str(folders["llava"]), None, replace(data, items=data.items + data.items[:1]), tmp_path / "o.jsonl")
