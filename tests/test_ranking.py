"""Ranking a large source: what promises most is kept, in whole groups, with a share drawn by lot, all accounted for."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from synth.config import PluginChoice
from synth.dataset.shards import read_rows
from synth.errors import BackendError, RunError
from synth.findings import Quota
from synth.images import encode_jpeg
from synth.perception import clip, ranking
from synth.perception.cache import Cache, decode_vector, encode, encode_vector
from synth.perception.ranking import Ranked, Ranking, RankingOptions, Unranked, choose, ranking_of
from synth.pipeline import generate
from synth.plugins import TASKS, load, load_all
from synth.recipe import Recipe
from synth.types import Regions, Skill, SourceItem
from tests import small_vision
from tests.scenes import benchmark_folder, folder_with_truth


def asked(weights: Mapping[str, float] | None = None, **settings: object) -> Ranking:
    """Each task wants a caption of its own name; the one unwanted caption is "page"."""
    weights = weights or {"t": 1.0}
    return Ranking(
        options=RankingOptions.model_validate({"random_share": 0.0, "unwanted": ("page",), **settings}),
        wants={task: (task,) for task in weights},
        weights=weights,
        model="m",
    )


def photos(n: int, group_of: int = 1) -> list[SourceItem]:
    return [SourceItem(key=f"p{i:03d}", fingerprint=f"f{i}", group=f"g{i // group_of:03d}") for i in range(n)]


def keys(items: Sequence[SourceItem]) -> list[str]:
    return [item.key for item in items]


# ------------------------------------------------------------------------------------------------ who is kept


def test_the_best_are_kept_in_the_source_s_order_and_each_other_photo_says_its_margin_and_place() -> None:
    wanted = [0.1, 0.9, 0.5, 0.7]
    likeness = {f"p{i:03d}": [w, 0.2] for i, w in enumerate(wanted)}
    ranked = choose(photos(4), likeness, asked(keep=2), seed=0)
    assert keys(ranked.kept) == ["p001", "p003"] and ranked.best == ranked.kept and not ranked.drawn
    assert [(d.stage, d.image, d.reason, d.example) for d in ranked.drops] == [
        ("ranking", "p002", "ranked_low", "place 3 of 4: t +0.30000"),
        ("ranking", "p000", "ranked_low", "place 4 of 4: t -0.10000"),
    ]


def test_what_is_unwanted_counts_against_a_photo() -> None:
    likeness = {"p000": [0.9, 0.8], "p001": [0.6, 0.1], "p002": [0.5, 0.5]}
    assert keys(choose(photos(3), likeness, asked(keep=1), seed=0).kept) == ["p001"]


def test_the_best_caption_of_a_task_counts() -> None:
    many = Ranking(
        options=RankingOptions(unwanted=("page", "logo")), wants={"t": ("a", "b")}, weights={"t": 1.0}, model="m"
    )
    assert many.prompts == ("a", "b", "page", "logo")
    assert many.margins([0.1, 0.6, 0.3, 0.2]) == {"t": pytest.approx(0.3)}


def test_a_group_is_kept_whole_or_not_at_all_by_its_mean() -> None:
    """g0 has the best photo and the worse mean."""
    wanted = {"p000": 0.9, "p001": 0.0, "p002": 0.6, "p003": 0.5, "p004": 0.1, "p005": 0.2}
    likeness = {key: [w, 0.0] for key, w in wanted.items()}
    items = photos(6, group_of=2)
    assert keys(choose(items, likeness, asked(keep=1), seed=0).kept) == ["p002", "p003"]
    assert keys(choose(items, likeness, asked(keep=3), seed=0).kept) == ["p000", "p001", "p002", "p003"]
    assert keys(choose(items, likeness, asked(keep=2), seed=0).kept) == ["p002", "p003"]


def test_photos_of_no_known_group_stand_alone() -> None:
    items = [SourceItem(key=f"p{i:03d}", fingerprint="", group="") for i in range(4)]
    likeness = {key: [w, 0.0] for key, w in zip(keys(items), (0.1, 0.2, 0.3, 0.4), strict=True)}
    assert keys(choose(items, likeness, asked(keep=2), seed=0).kept) == ["p002", "p003"]


@pytest.mark.parametrize(("share", "depths", "counts"), [(0.75, 30, 10), (0.5, 20, 20), (0.25, 10, 30)])
def test_a_larger_quota_s_list_is_walked_faster_and_levels_of_captions_do_not_matter(
    share: float, depths: int, counts: int
) -> None:
    """Photos 0..99 suit depth, 100..199 counting, the first of each best; all are more like depth's caption."""
    likeness = {f"p{i:03d}": [0.8 - i / 1000, 0.2 - i / 1000 if i >= 100 else -i / 1000, 0.0] for i in range(200)}
    wanted = asked({"depth": share, "counting": 1 - share}, keep=40)
    kept = [int(key[1:]) for key in keys(choose(photos(200), likeness, wanted, seed=0).kept)]
    assert kept == [*range(depths), *range(100, 100 + counts)]


def test_a_share_is_drawn_by_lot_from_all_photos_and_depends_on_seed_and_group_only() -> None:
    likeness = {f"p{i:03d}": [i / 1000, 0.0] for i in range(400)}
    ranked = choose(photos(400), likeness, asked(keep=0.5, random_share=0.25), seed=0)
    assert (len(ranked.kept), len(ranked.drawn), len(ranked.best), len(ranked.drops)) == (200, 50, 150, 200)
    worst = sum(int(item.key[1:]) < 200 for item in ranked.drawn)
    assert 15 <= worst <= 35  # half of them, whatever their place
    assert all(int(item.key[1:]) >= 200 for item in ranked.best)
    assert choose(photos(400), dict(reversed(likeness.items())), asked(keep=0.5, random_share=0.25), seed=0) == ranked
    other = choose(photos(400), likeness, asked(keep=0.5, random_share=0.25), seed=1)
    assert other.drawn != ranked.drawn and len(other.kept) == 200
    upside_down = {key: [-row[0], 0.0] for key, row in likeness.items()}
    drawn = choose(photos(400), upside_down, asked(keep=0.5, random_share=0.25), seed=0).drawn
    assert drawn == ranked.drawn
    assert not choose(photos(400), likeness, asked(keep=0.5, random_share=1.0), seed=0).best


def test_ties_go_by_key_and_photos_that_cannot_be_read_are_passed_on_and_not_counted() -> None:
    likeness = {f"p{i:03d}": [0.5, 0.0] for i in range(6) if i != 4}
    ranked = choose(photos(6), likeness, asked(keep=2), seed=0)
    assert keys(ranked.kept) == ["p000", "p001", "p004"] and keys(ranked.best) == ["p000", "p001"]
    assert keys(choose(photos(3), {}, asked(keep=2), seed=0).kept) == ["p000", "p001", "p002"]


@pytest.mark.parametrize(("keep", "n", "expected"), [(0.1, 30, 3), (0.1, 31, 4), (1.0, 7, 7), (1, 7, 1), (2000, 7, 7)])
def test_a_share_or_a_number(keep: float, n: int, expected: int) -> None:
    assert RankingOptions(keep=keep).number(n) == expected


@pytest.mark.parametrize("keep", [0, 0.0, 1.5, -3, "many"])
def test_neither_a_share_nor_a_number_is_an_error(keep: object) -> None:
    with pytest.raises(ValidationError, match="keep"):
        RankingOptions.model_validate({"keep": keep})


def test_every_caption_of_the_tasks_is_a_sentence_of_its_own() -> None:
    wanting = {task.name: task.wants for task in load_all(TASKS) if task.wants}
    assert {"relative_depth", "counting", "spatial_relation", "visual_correspondence"} <= wanting.keys()
    for texts in wanting.values():
        assert len(set(texts)) == len(texts) and all(text.startswith("a photo of ") for text in texts)


# ------------------------------------------------------------------------------------------------ on or off

QUOTAS = [
    Quota(task="counting", skill=Skill.COUNTING, n=30, why=""),
    Quota(task="relative_depth", skill=Skill.RELATIVE_DEPTH, n=10, why=""),
    Quota(task="left_right", skill=Skill.LEFT_RIGHT, n=60, why=""),
]
CHOSEN = {quota.task: load(TASKS, quota.task) for quota in QUOTAS}


def test_without_weights_nothing_is_ranked_and_named_weights_must_be_here(tmp_path: Path) -> None:
    assert ranking_of(None, CHOSEN, QUOTAS) == Unranked(status="not asked")
    off = ranking_of(RankingOptions(), CHOSEN, QUOTAS)
    assert isinstance(off, Unranked) and off.status == "not_run" and off.identity == ""
    assert f"hf download {clip.DEFAULT}" in off.why and "--set ranking.path=models/CLIP-ViT-B-32" in off.why
    absent = RankingOptions(path=str(tmp_path / "absent"))
    with pytest.raises(BackendError, match="no checkpoint folder") as caught:
        ranking_of(absent, CHOSEN, QUOTAS)
    assert "--set ranking.path=" in caught.value.fix
    silent = ranking_of(absent, {"left_right": CHOSEN["left_right"]}, QUOTAS)
    assert isinstance(silent, Unranked) and "no task of the plan" in silent.why


def test_the_identity_is_that_of_settings_captions_quotas_and_weights(tmp_path: Path) -> None:
    folder = small_vision.clip(tmp_path / "clip")
    options = RankingOptions(path=str(folder), device="cpu")

    def identity(quotas: Sequence[Quota] = QUOTAS, **changes: object) -> str:
        found = ranking_of(options.model_copy(update=changes), CHOSEN, quotas)
        assert isinstance(found, Ranking)
        return found.identity

    first = ranking_of(options, CHOSEN, QUOTAS)
    assert isinstance(first, Ranking) and first.weights == {"counting": 0.75, "relative_depth": 0.25}
    changed = [{"keep": 0.4}, {"random_share": 0.1}, {"unwanted": ("a map",)}, {"batch_size": 2}]
    others = {identity(**change) for change in changed} | {identity(QUOTAS[:1]), identity()}
    assert len(others) == 6
    assert identity(device="auto") == identity()
    weights = folder / "open_clip_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\1\0")
    assert identity() not in others


# ------------------------------------------------------------------------------------------------ a run


def brightness_encoder(looked: list[int]) -> clip.Encoder:
    """Dark is what every task wants; the brighter, the more like what is unwanted. Counts the pictures it is shown."""
    import torch

    unwanted = RankingOptions().unwanted

    def on_circle(angles: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.cos(angles), torch.sin(angles)], dim=1)

    class Brightness:
        def encode_image(self, image: torch.Tensor, normalize: bool) -> torch.Tensor:
            looked.append(len(image))
            return on_circle(image.mean(dim=(1, 2, 3)) * math.pi / 2)

        def encode_text(self, text: torch.Tensor, normalize: bool) -> torch.Tensor:
            return on_circle(text * math.pi / 2)

    return clip.Encoder(
        model=Brightness(),
        tokenizer=lambda texts: torch.tensor([float(text in unwanted) for text in texts]),
        device="cpu",
        options=RankingOptions(),
        size=(16, 16),
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        prepare=lambda image: torch.tensor(np.asarray(image.resize((16, 16))) / 255.0).permute(2, 0, 1).float(),
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten photos with truth in groups of two, eight white pages, a damaged file, and a tiny checkpoint."""
    root = tmp_path_factory.mktemp("world")
    folder = folder_with_truth(root / "photos", 10, group_of=2)
    for i in range(8):
        page = np.full((120, 160, 3), 255, np.uint8)
        page[10 + 9 * i : 14 + 9 * i, 20:140] = 0
        (folder / f"page_{i}.jpg").write_bytes(encode_jpeg(page))
    (folder / "damaged.jpg").write_bytes((folder / "photo_000.jpg").read_bytes()[:900])
    benchmark_folder(root / "bench", 3)
    small_vision.clip(root / "clip")
    return root


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the batches that the model was shown."""
    sizes: list[int] = []
    monkeypatch.setattr(clip, "load_encoder", lambda options, where: brightness_encoder(sizes))
    ranking.forget()
    return sizes


def recipe(world: Path, cache: Path | None, **changes: object) -> Recipe:
    value: dict[str, object] = {
        "name": "test",
        "seed": 3,
        "source": {"name": "folder", "path": str(world / "photos")},
        "ranking": {"path": str(world / "clip"), "device": "cpu", "keep": 12, "random_share": 0.25, "batch_size": 3},
        "perception": {"depth": {"name": "truth"}, "cache": str(cache) if cache else None},
        "tasks": {"relative_depth": {"n": 16}},
        "guard": {"unguarded": True},
        "output": {"images_per_shard": 5, "evidence": 0},
    }
    return Recipe.model_validate({**value, **changes})


def drops(out: Path) -> list[SimpleNamespace]:
    return [SimpleNamespace(**row) for row in pq.read_table(out / "drops.parquet").to_pylist()]


def test_a_run_keeps_the_promising_photos_and_accounts_for_each_one(
    world: Path, looked: list[int], tmp_path: Path
) -> None:
    guard = {"benchmark": {"name": "jsonl", "path": str(world / "bench")}, "options": {"planted": 10}}
    changes: dict[str, object] = {
        "source": {"name": "folder", "path": str(world / "photos"), "limit": 13},  # four of the photos with truth
        "ranking": {"path": str(world / "clip"), "device": "cpu", "keep": 6, "random_share": 0.25, "batch_size": 3},
        "tasks": {"relative_depth": {"n": 4}},
    }
    made = generate(recipe(world, tmp_path / "cache", guard=guard, **changes), tmp_path / "out")
    section = made["ranking"]
    assert section["status"] == "run" and section["model"].startswith("clip:clip@")
    assert section["wants"] == {"relative_depth": list(load(TASKS, "relative_depth").wants)}
    images = section["images"]
    assert images["scored"] == 12 and images["not_scored"] == 1 and images["random"] >= 2
    assert images["best"] + images["random"] + images["ranked_low"] == 12 and images["best"] + images["random"] >= 6
    low = [drop for drop in drops(tmp_path / "out") if drop.stage == "ranking"]
    assert {drop.reason for drop in low} == {"ranked_low"} and len(low) == images["ranked_low"]
    assert all(drop.example.startswith("place ") and "relative_depth " in drop.example for drop in low)
    # A photo is darker than any page: pages fall, and those that stay were drawn by lot.
    assert {Path(drop.image).stem.split("_")[0] for drop in low} == {"page"}
    (row,) = [row for row in made["drops"] if row["reason"] == "ranked_low"]
    assert row["count"] == images["ranked_low"] and row["example"].startswith("place ")
    assert made["images"]["listed"] == 13 and made["images"]["dropped"] == 13 - made["images"]["used"]
    fallen = [drop for drop in drops(tmp_path / "out") if not drop.task]
    assert Counter(drop.image for drop in fallen).most_common(1)[0][1] == 1
    # The guard has looked at everything that was kept, and at nothing else.
    scans = [json.loads(path.read_text()) for path in (tmp_path / "out" / ".work").glob("scan-*.json")]
    scanned = [line["key"] for scan in scans for line in scan["found"]] + [
        k for scan in scans for k in scan["unreadable"]
    ]
    assert len(scanned) == len(set(scanned)) == 13 - len(low) and not set(scanned) & {drop.image for drop in low}
    per = section["pairs_per_image"]
    n_pairs = len(list(read_rows(tmp_path / "out", ["qa_id"])))
    assert per["best"] * images["best"] + per["random"] * images["random"] == pytest.approx(n_pairs, abs=0.1)
    assert made["perception"]["ranking: images looked at"] == sum(looked) == 12


def test_a_run_that_was_stopped_goes_on_from_the_cache_and_gives_the_same_bytes(
    world: Path, looked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(recipe(world, None), tmp_path / "whole")
    assert sum(looked) == 18
    looked.clear()
    real, calls = ranking._look, []

    def stops(*given: object) -> object:
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(given)
        return real(*given)

    monkeypatch.setattr(ranking, "_look", stops)
    with pytest.raises(KeyboardInterrupt):
        generate(recipe(world, tmp_path / "cache"), tmp_path / "stopped")
    before = sum(looked)
    assert 0 < before < 18
    monkeypatch.setattr(ranking, "_look", real)
    generate(recipe(world, tmp_path / "cache"), tmp_path / "stopped")
    assert sum(looked) == 18, "a photo went through the model twice"
    for name in ("drops.parquet", "README.md"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    rows = [list(read_rows(tmp_path / name, ["qa_id", "images"])) for name in ("whole", "stopped")]
    assert rows[0] == rows[1]
    # Other numbers, the same photos and weights: the model is shown nothing.
    other = {"path": str(world / "clip"), "device": "cpu", "keep": 5, "batch_size": 3}
    made = generate(recipe(world, tmp_path / "cache", ranking=other), tmp_path / "fewer")
    assert made["perception"]["ranking: cache hits"] == sum(looked) == 18
    with pytest.raises(RunError, match="another plan"):
        generate(recipe(world, tmp_path / "cache", ranking=other), tmp_path / "whole")


def test_off_takes_all_photos_and_the_manifest_says_why(world: Path, tmp_path: Path) -> None:
    made = generate(recipe(world, None, ranking=None), tmp_path / "a")
    assert made["ranking"] == {"status": "not asked"}
    asked_for = generate(recipe(world, None, ranking={"keep": 3}), tmp_path / "b")
    assert asked_for["ranking"]["status"] == "not_run" and "no weights" in asked_for["ranking"]["why"]
    assert made["images"]["listed"] == 19 and made["images"] == asked_for["images"]
    assert not any(drop.stage == "ranking" for drop in drops(tmp_path / "b"))


def test_a_real_model_compares_whole_photos_as_open_clip_does(world: Path, tmp_path: Path) -> None:
    import open_clip
    import torch

    ranking.forget()
    options = RankingOptions(path=str(world / "clip"), device="cpu", batch_size=2)
    wanted = ranking_of(options, CHOSEN, QUOTAS)
    assert isinstance(wanted, Ranking)
    names = ("damaged.jpg", "page_0.jpg", "photo_003.jpg", "photo_004.jpg")
    spec = ranking.RankSpec(
        source=PluginChoice.model_validate({"name": "folder", "path": str(world / "photos")}),
        ranking=wanted,
        cache=str(tmp_path / "cache"),
        run="r",
        number=0,
        items=tuple(i for i in source_items(world) if i.key in names),
        folder=tmp_path,
    )
    assert pickle.loads(pickle.dumps(spec)) == spec
    ranking.rank_shard(spec)
    likeness, counts = ranking.read_shards([spec])
    assert list(likeness) == list(names[1:]) and counts["ranking: images looked at"] == 3
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{world / 'clip'}")
    tokens = open_clip.get_tokenizer(f"local-dir:{world / 'clip'}")(list(wanted.prompts))
    pictures = [preprocess(Image.open(world / "photos" / name)) for name in names[1:]]
    with torch.inference_mode():
        images = model.eval().encode_image(torch.stack(pictures), normalize=True)
        expected = (images @ model.encode_text(tokens, normalize=True).T).numpy()
    assert np.allclose(np.array(list(likeness.values())), expected, atol=2e-5)
    spec.path.write_text(spec.path.read_text().replace('"photo_003.jpg"', '"other.jpg"'))
    with pytest.raises(RunError, match="not the photos of this shard"):
        ranking.read_shards([spec])
    with pytest.raises(RunError, match="another run"):
        ranking.read_shards([SimpleNamespace(path=spec.path, run="s", items=spec.items)])


def source_items(world: Path) -> Sequence[SourceItem]:
    from synth.sources.folder import SOURCE, Options

    return SOURCE.list(Options(path=world / "photos"))


def test_a_cached_vector_comes_back_bit_by_bit_and_another_entry_is_none(tmp_path: Path) -> None:
    vector = np.random.default_rng(0).normal(size=512).astype(np.float32)
    cache = Cache(tmp_path)
    cache.put_vector("ab" * 16, vector)
    back = cache.get_vector("ab" * 16)
    assert back is not None and back.dtype == np.float32 and np.array_equal(back, vector)
    assert cache.get("ab" * 16) is None and cache.stats().corrupt == 1
    with pytest.raises(ValueError, match="not a vector"):
        decode_vector(encode(Regions(items=(), complete=False, backend="b"), "k"), "k")
    with pytest.raises(ValueError, match="under another name"):
        decode_vector(encode_vector(vector, "k"), "l")


def test_what_is_not_ranked_has_no_numbers() -> None:
    assert ranking.section(Unranked(status="not asked"), Ranked(kept=()), {}) == {"status": "not asked"}
    alone = SourceItem(key="a", fingerprint="", group="")
    ranked = Ranked(kept=(alone,), best=(alone,))
    assert ranking.section(asked(), ranked, {"": 3})["pairs_per_image"] == {"best": None, "random": None}
