"""The guard's local features: extraction and mirror, codes, votes and geometry, pixels, and that they fail closed."""

import json
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from synth import images
from synth.contracts import BenchmarkData
from synth.errors import GuardError
from synth.geometry import generator
from synth.guard import bank, drawings, features, selftest, vocabulary, votes, warp
from synth.guard.building import build_index
from synth.guard.cascade import Guard
from synth.guard.index import load_index, save_index
from synth.guard.options import GuardOptions
from synth.guard.transforms import TRANSFORMS, clouds
from synth.types import Rgb
from tests.scenes import picture_benchmark

SIZE = (330, 420)
N = 8
N_STRANGERS = 300


@lru_cache(maxsize=32)
def scene(seed: int) -> Rgb:
    """Clouds with discs and bars before them: corners at all scales, unlike every other seed."""
    rng = np.random.default_rng(seed)
    picture = clouds(*SIZE, rng).astype(np.float32)
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    for _ in range(60):
        y, x, r = rng.uniform(0, SIZE[0]), rng.uniform(0, SIZE[1]), rng.uniform(3, 30)
        a, b = rng.uniform(-1, 1, 2)
        inside = (np.abs((rows - y) * a + (columns - x) * b) < r / 2) & ((rows - y) ** 2 + (columns - x) ** 2 < r * r)
        picture[inside] = rng.uniform(0, 255, 3)
    return np.asarray(picture + rng.normal(0, 3, picture.shape), dtype=np.float32).clip(0, 255).astype(np.uint8)


def benchmark(pictures: dict[str, Rgb]) -> BenchmarkData:
    return picture_benchmark({name: images.encode_png(rgb) for name, rgb in pictures.items()})


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard(build_index(benchmark({f"p{n}": scene(n) for n in range(N)})))


def query(rgb: Rgb) -> features.Features:
    return features.extract(features.canonical(rgb))


# ---------------------------------------------------------------------------------------------------------- extraction


def test_the_mirrored_descriptors_are_those_of_the_mirrored_picture() -> None:
    picture = features.canonical(scene(1))
    turned, real = (
        features.mirrored(features.extract(picture)),
        features.extract(np.ascontiguousarray(picture[:, ::-1])),
    )
    apart = np.abs(turned.places[:, None, :2] - real.places[None, :, :2]).max(axis=2)
    angles = np.abs(np.angle(np.exp(1j * (turned.places[:, None, 3] - real.places[None, :, 3]))))
    here, there = np.nonzero((apart < 1) & (angles < 0.1))
    assert len(set(here.tolist())) > 0.9 * len(turned)
    distance = np.linalg.norm(turned.descriptors[here].astype(float) - real.descriptors[there], axis=1)
    wrong = np.linalg.norm(turned.descriptors[here].astype(float) - np.roll(real.descriptors[there], 1, axis=0), axis=1)
    assert np.median(distance) < 60 < 250 < np.median(wrong)
    twice = features.mirrored(turned)
    again = features.extract(picture)
    assert (twice.descriptors == again.descriptors).all()
    assert np.allclose(twice.places[:, :3], again.places[:, :3], atol=1e-3)


def test_pictures_are_brought_to_one_size_and_small_ones_only_doubled() -> None:
    assert features.canonical(images.resize(scene(0), 1000, 600)).shape == (230, 384)
    assert features.canonical(images.resize(scene(0), 100, 60)).shape == (120, 200)
    found = query(scene(0))
    assert len(found) == features.MOST and found.descriptors.dtype == np.uint8
    norms = np.linalg.norm(found.descriptors.astype(float), axis=1)
    assert abs(np.median(norms) - features.UNIT) < 0.05 * features.UNIT
    assert len(query(np.full((90, 90, 3), 7, np.uint8))) == 0


def test_without_opencv_nothing_is_clean(guard, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(GuardError, match="OpenCV"):
        guard.check_file(images.encode_png(scene(77)))
    with pytest.raises(GuardError, match="OpenCV"):
        build_index(benchmark({"x": scene(1)}))


# ------------------------------------------------------------------------------------------------------ codes and votes


def test_the_nearest_cell_of_a_descriptor_is_its_own_and_codes_do_not_change() -> None:
    rows = np.concatenate([query(scene(n)).descriptors for n in range(4)])
    codes = vocabulary.train(rows)
    cells, signatures = vocabulary.encode(codes, rows)
    assert codes.n_cells == 9 and len(set(cells.tolist())) == 9
    probed, again = vocabulary.probe(codes, rows, 1)
    assert (probed[:, 0] == cells).all() and (again == signatures).all()
    noisy = np.clip(rows + np.random.default_rng(0).normal(0, 6, rows.shape), 0, 255).astype(np.uint8)
    _, bits = vocabulary.encode(codes, noisy)
    assert np.median(np.bitwise_count(bits ^ signatures)) < votes.BITS_APART
    assert np.median(np.bitwise_count(np.roll(bits, 1) ^ signatures)) > 20
    assert (vocabulary.train(rows).words == codes.words).all()


def test_geometry_gives_the_similarity_itself(guard) -> None:
    rgb = scene(3)
    cut = rgb[60:240, 90:330]
    best = votes.Search(guard.index.bank).align(query(np.ascontiguousarray(cut[:, ::-1])))[0]
    assert (guard.index.names[best.owner], best.mirrored) == ("p3", True)
    assert best.inliers > 20
    # 240 px of the cut become 384, and 420 px of the whole: one pixel of the cut is 0.571 of the whole's.
    assert abs(best.turn - (240 / 384) * (384 / 420)) < 0.01
    assert abs(best.shift - (90 + 60j) * 384 / 420) < 2


def test_votes_survive_many_other_pictures() -> None:
    """The shortlist must hold the right picture among many; strangers are noisy copies of real descriptors."""
    rng = np.random.default_rng(0)
    real = [(query(scene(n)), np.zeros((4, 4), np.uint8)) for n in range(N)]
    pool = np.concatenate([one.descriptors for one, _ in real]).astype(np.float32)
    strangers = []
    for _ in range(N_STRANGERS):
        rows = np.clip(pool[rng.integers(0, len(pool), 400)] + rng.normal(0, 25, (400, 128)), 0, 255).astype(np.uint8)
        places = np.stack([rng.uniform(0, 384, 400), rng.uniform(0, 288, 400), rng.uniform(2, 12, 400)], axis=1)
        places = np.column_stack([places, rng.uniform(0, 6.28, 400)]).astype(np.float32)
        strangers.append((features.Features(descriptors=rows, places=places, width=384), np.zeros((4, 4), np.uint8)))
    search = votes.Search(bank.build([*strangers, *real]))
    for kind in ("crop50", "flip_crop70_marks"):
        for n in (0, 3):
            rgb = scene(n)
            data = TRANSFORMS[kind].copy(rgb, rgb, generator(n, kind))
            best = search.align(query(images.decode(data)))[0]
            assert (best.owner, best.inliers >= 8) == (N_STRANGERS + n, True), kind


def test_a_picture_shown_twice_in_the_benchmark_is_still_found() -> None:
    """A ratio test against the nearest descriptor of another image would forbid every match."""
    rgb = scene(5)
    pictures = {"a": rgb, "b": images.resize(rgb[10:], 400, 300), "c": rgb[:, 20:], "other": scene(6)}
    twice = Guard(build_index(benchmark(pictures)))
    found = twice.check_file(TRANSFORMS["crop70"].copy(rgb, rgb, generator(1)))
    assert found.is_hit and found.match in ("a", "b", "c")
    assert found.evidence["inliers"] >= 40


def test_matches_at_one_place_are_one() -> None:
    places = np.array([[10.0, 10, 4, 0], [11, 11, 4, 0], [10.5, 9, 4, 0], [40, 40, 4, 0]], dtype=np.float32)
    assert votes._distinct(places) == 2
    here = np.zeros((0, 4), dtype=np.float32)
    assert votes._fit(here, here) is None


# -------------------------------------------------------------------------------------------------------------- pixels


def aligned(mirrored: bool = False, turn: complex = 1, shift: complex = 0, spread: float = 300.0) -> votes.Alignment:
    places = np.array([[0, 0], [spread, spread * 0.7]], dtype=np.float32)
    return votes.Alignment(owner=0, mirrored=mirrored, inliers=9, turn=turn, shift=shift, places=places)


def test_the_same_pixels_correlate_and_only_under_the_right_geometry() -> None:
    picture = features.canonical(scene(2))
    thumb, width = bank.thumbnail(picture), picture.shape[1]
    whole = warp.overlap(picture, thumb, width, aligned())
    assert whole.correlation > 0.95 and whole.covered > 0.97 and whole.spread > 0.5
    flipped = np.ascontiguousarray(picture[:, ::-1])
    assert warp.overlap(flipped, thumb, width, aligned(mirrored=True)).correlation > 0.95
    assert warp.overlap(flipped, thumb, width, aligned()).correlation < 0.6
    part = picture[:150, :200]
    seen = warp.overlap(part, thumb, width, aligned(spread=190))
    assert seen.correlation > 0.95 and abs(seen.covered - part.size / picture.size) < 0.05
    assert warp.overlap(picture, thumb, width, aligned(shift=5000)).correlation == 0


def test_words_for_what_was_seen() -> None:
    def said(inliers: int, correlation: float, covered: float, spread: float) -> str | None:
        seen = warp.Overlap(correlation=correlation, covered=covered, spread=spread)
        return warp.word(inliers, seen, 0.8, 40)

    assert said(9, 0.9, 1.0, 0.1) == "copy"
    assert said(9, 0.9, 0.5, 0.1) == "crop"
    assert said(60, 0.2, 1.0, 0.5) == "copy"
    assert said(14, 0.2, 1.0, 0.5) == "scene"
    assert said(60, 0.2, 1.0, 0.05) == "copy"
    assert said(14, 0.2, 1.0, 0.05) is None, "a logo in the corner of both"


# ------------------------------------------------------------------------------------------------------------- cascade


def test_what_pdq_cannot_see_is_found_and_named(guard) -> None:
    words = {"crop50": "crop", "flip_crop70_marks": "crop", "screenshot": "copy", "jigsaw": "copy"}
    for kind, word in words.items():
        found = guard.check_file(TRANSFORMS[kind].copy(scene(4), scene(40), generator(0, kind)))
        assert (found.verdict, found.match) == (word, "p4"), (kind, found.evidence)
        assert found.stage == "warp_correlation" or kind in ("screenshot", "jigsaw")
    stranger = guard.check_file(images.encode_png(scene(70)))
    assert (stranger.verdict, stranger.stage) == ("clean", "warp_correlation")
    assert stranger.evidence["inliers"] < 8 and stranger.evidence["key_points"] == features.MOST
    json.dumps(stranger.line("x"))


def test_a_part_of_a_benchmark_picture_in_another_scene_is_found(guard) -> None:
    rgb = scene(50).copy()
    assert guard.check_file(images.encode_png(rgb)).verdict == "clean"
    rgb[80:230, 90:300] = scene(2)[80:230, 90:300]
    found = guard.check_file(images.encode_png(rgb))
    assert found.is_hit and found.match == "p2"
    assert found.evidence["correlation"] < 0.8


def test_of_two_frames_of_one_scene_the_right_one_is_named() -> None:
    rgb = scene(5)
    moved = np.roll(scene(5), 25, axis=1)
    moved[:, 150:330] = rgb[:, 150:330]
    both = Guard(build_index(benchmark({"a": rgb, "b": moved})))
    for name, picture in (("a", rgb), ("b", moved)):
        found = both.check_file(TRANSFORMS["crop90"].copy(picture, picture, generator(2, name)))
        assert found.match == name, found.evidence


def test_few_inliers_are_a_near_miss_and_the_working_point_is_in_the_options(guard) -> None:
    data = TRANSFORMS["crop70"].copy(scene(4), scene(40), generator(0, "near"))
    inliers = guard.check_file(data).evidence["inliers"]
    assert isinstance(inliers, int) and inliers >= 8
    strict = Guard(guard.index, GuardOptions(inliers=inliers + 1)).check_file(data)
    assert (strict.verdict, strict.near_miss) == ("clean", True)


def test_renders_and_drawings_are_not_matched_by_features(guard) -> None:
    data = TRANSFORMS["crop70"].copy(scene(4), scene(40), generator(0, "route"))
    render = guard.check_file(data, content="rendered")
    assert (render.verdict, render.stage, render.evidence["route"]) == ("clean", "pdq_panels", "rendered")
    sheets = {f"d{n}": sheet(n) for n in range(6)}
    indexed = Guard(build_index(benchmark(sheets)))
    assert len(indexed.index.bank.places) == 0
    for n in range(12, 20):
        found = indexed.check_file(images.encode_png(sheet(n)))
        assert (found.verdict, found.evidence["route"]) == ("clean", "drawing"), found.evidence
    assert indexed.check_file(TRANSFORMS["jpeg60"].copy(sheet(3), sheet(3), generator(0))).match == "d3"


def sheet(seed: int) -> Rgb:
    """A puzzle of nine framed cells with one shape each: only the shapes differ between two."""
    rng = np.random.default_rng(seed)
    page = np.full((390, 390, 3), 255, np.uint8)
    for row in range(3):
        for column in range(3):
            cell = page[15 + row * 120 : 135 + row * 120, 15 + column * 120 : 135 + column * 120]
            cell[[0, 1, -2, -1]] = cell[:, [0, 1, -2, -1]] = 0
            y, x = rng.integers(15, 50, 2)
            tall, wide = rng.integers(20, 55, 2)
            cell[y : y + tall, x : x + wide] = rng.choice([0, 128, 200])
    return page


def test_photographs_are_no_drawings(shared: Path) -> None:
    for folder in ("photos", "photos_gt"):
        for path in sorted((shared / folder).iterdir())[::5]:
            if path.suffix in images.SUFFIXES:
                assert not drawings.is_drawing(features.canonical(images.decode(path.read_bytes()))), path.name
    assert drawings.is_drawing(features.canonical(sheet(0)))


def test_a_smooth_photograph_is_checked_by_its_key_points() -> None:
    """Too even for PDQ, but not without key points: a copy is found, and a stranger may be called clean."""
    faint = {n: np.asarray(120 + (scene(n).astype(np.float32) - 128) * 0.12, dtype=np.uint8) for n in (0, 1, 2)}
    smooth = Guard(build_index(benchmark({"a": faint[0], "b": faint[1]})))
    assert smooth.index.quality.max() < 30
    found = smooth.check_file(images.encode_png(np.ascontiguousarray(faint[0][20:300, 30:400])))
    assert (found.verdict, found.match) == ("crop", "a")
    assert smooth.check_file(images.encode_png(faint[2])).verdict == "clean"


# --------------------------------------------------------------------------------------------------------------- index


def test_features_survive_the_disk_and_a_changed_one_is_noticed(guard, tmp_path) -> None:
    path = tmp_path / "index.npz"
    save_index(guard.index, path)
    again = load_index(path)
    for name in ("descriptors", "places", "starts", "cells", "signatures", "thumbnails", "sizes"):
        assert (getattr(again.bank, name) == getattr(guard.index.bank, name)).all()
    assert again.bank.thumbnail(3).shape == (76, 96)
    for name in ("descriptors", "places", "signatures", "thumbnails"):
        column = getattr(guard.index.bank, name).copy()
        column.reshape(-1)[-1] += 1
        save_index(replace(guard.index, bank=replace(guard.index.bank, **{name: column})), path)
        with pytest.raises(GuardError, match="sha256"):
            load_index(path)


def test_an_index_of_an_older_version_says_so(tmp_path) -> None:
    path = tmp_path / "old.npz"
    meta = json.dumps({"sha256": "0", "algorithm": "pdq/320/frames-1"}).encode()
    np.savez(path, meta=np.frombuffer(meta, dtype=np.uint8), names=np.array(["a"]))
    with pytest.raises(GuardError, match="made for pdq/320/frames-1, this version compares"):
        load_index(path)


def test_a_picture_with_other_marks_shares_features_with_its_likeness() -> None:
    rgb = scene(1)
    marked = images.decode(TRANSFORMS["marks"].copy(rgb, rgb, generator(0)))
    index = build_index(benchmark({"a": rgb, "b": marked, "c": scene(2)}))
    assert np.diff(index.bank.starts).tolist() == [features.MOST, 0, features.MOST]


# ------------------------------------------------------------------------------------------------------------ self-test


def test_the_self_test_counts_what_is_found_missed_and_flagged(tmp_path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.png").write_bytes(images.encode_png(scene(n)))
    strangers = {f"s{n}": images.encode_png(scene(20 + n)) for n in range(2)}
    leaked = {**strangers, "leak": images.encode_jpeg(scene(1)[:300], 80)}
    result = selftest.selftest(tmp_path, leaked, most=1)
    assert set(result.recall) == set(TRANSFORMS)
    found = sum(one.found for one in result.recall.values())
    assert len(result.missed) == len(TRANSFORMS) - found <= 1
    assert result.n_negatives == 9
    assert {flag.name for flag in result.flagged} == {"leak"}
    printed = selftest.table(result)
    assert "crop50" in printed and "leak identity: " in printed
    assert json.loads(json.dumps(selftest.to_json(result)))["negatives"]["n"] == 9
