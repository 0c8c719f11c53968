"""The contamination guard: what it finds, what it lets through, and that it fails closed."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from synth import images
from synth.contracts import BenchmarkData
from synth.errors import GuardError, ImageError
from synth.geometry import generator
from synth.guard import pdq, plant
from synth.guard.building import build_index
from synth.guard.canaries import canaries_in_image, canaries_in_text
from synth.guard.cascade import Guard
from synth.guard.certificate import (
    CLEAN,
    LIMITS,
    NOT_ESTABLISHED,
    RunFacts,
    certify,
    certify_unguarded,
    read_certificate,
    write_certificate,
)
from synth.guard.index import Expected, load_index, save_index
from synth.guard.masking import fill
from synth.guard.options import GuardOptions, content_of
from synth.guard.panels import frames, panels
from synth.guard.provenance import pools, table
from synth.guard.scan import merge, scan
from synth.guard.survey import CertifiedRow, survey
from synth.guard.text import normalise_question
from synth.guard.transforms import TRANSFORMS, bordered, clouds
from synth.guard.verification import verify
from synth.marks import draw_marks
from synth.types import Item, Mark, Skill, View
from tests.test_pdq import structured

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FACTS = RunFacts(
    dataset="pairs", dataset_revision="1", generator="s2p", version="0", git="", config_sha256="00", seeds="0"
)
N = 6


PLANTABLE = sorted(kind for kind, one in TRANSFORMS.items() if one.planted)
PLANTED = len(PLANTABLE)


def png(seed: int) -> bytes:
    return images.encode_png(structured(seed))


def altered(rgb: np.ndarray, kind: str, seed: str) -> bytes:
    rng = generator(0, seed, kind)
    return TRANSFORMS[kind].copy(rgb, clouds(*rgb.shape[:2], rng), rng)


@pytest.fixture(scope="module")
def benchmark() -> BenchmarkData:
    items = tuple(
        Item(
            item_id=f"item{n}",
            category="depth",
            skill=Skill.RELATIVE_DEPTH,
            question="Which point is closer to the camera?" if n else "How many cups?",
            choices=("A", "B"),
            answer="A",
            prompt=f"Which point is closer? (A) A (B) B [{n}]",
            images=(png(n), png(n + 100)) if n == 0 else (png(n),),
        )
        for n in range(N)
    )
    return BenchmarkData(name="bench", revision="abc", items=items, clean_images={"0": png(200)})


@pytest.fixture(scope="module")
def guard(benchmark) -> Guard:
    return Guard(build_index(benchmark, Expected(items=N, images=N + 2, revision="abc")))


@pytest.fixture(scope="module")
def originals(benchmark) -> dict[str, bytes]:
    return {item.item_id: item.images[0] for item in benchmark.items if len(item.images) == 1}


@pytest.fixture(scope="module")
def proof(guard, originals) -> plant.Proof:
    return plant.prove(guard, plant.plant(originals, PLANTED, generator(0, "plant")), ("photograph", "rendered"))


def view(data: bytes, name: str = "photo", group: str = "", domain: str = "indoor") -> View:
    return View(
        image_id=images.image_id(data),
        data=data,
        width=1,
        height=1,
        name=name,
        source="folder",
        group=group or name,
        domain=domain,
    )


# ---------------------------------------------------------------------------------------------------------- the index


def test_every_image_of_every_item_and_every_clean_one_is_indexed(guard) -> None:
    assert guard.index.names.tolist() == ["item0#1", "item0#2", *(f"item{n}" for n in range(1, N)), "clean/0"]
    assert guard.index.n_images == N + 2
    for data, name in ((png(100), "item0#2"), (png(200), "clean/0")):
        found = guard.check_file(data)
        assert (found.verdict, found.match, found.stage) == ("copy", name, "file_sha256")


def test_an_index_survives_the_disk_and_nothing_else(guard, tmp_path) -> None:
    path = tmp_path / "index.npz"
    save_index(guard.index, path)
    again = load_index(path)
    assert again.sha256 == guard.index.sha256
    assert (again.rows == guard.index.rows).all()
    assert again.names.tolist() == guard.index.names.tolist()
    assert [p.name for p in tmp_path.iterdir()] == ["index.npz"]
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(whole), 40).tolist():
        damaged = bytearray(whole)
        damaged[position] ^= 1 + int(rng.integers(255))
        path.write_bytes(bytes(damaged))
        try:
            loaded = load_index(path)
        except GuardError as error:
            assert "build it again" in error.fix or "build the index again" in error.fix
        else:  # a byte that the format does not use
            assert loaded.sha256 == guard.index.sha256
            assert (loaded.rows == guard.index.rows).all()
    for content in (b"", b"PK", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(GuardError):
            load_index(path)


def test_a_changed_hash_or_count_is_noticed(guard, tmp_path) -> None:
    rows = guard.index.rows.copy()
    rows[0, 0] ^= 1
    for forged in (replace(guard.index, rows=rows), replace(guard.index, n_items=N + 1)):
        save_index(forged, tmp_path / "forged.npz")
        with pytest.raises(GuardError, match="sha256"):
            load_index(tmp_path / "forged.npz")


def test_a_benchmark_that_cannot_be_read_in_full_is_no_index(benchmark, tmp_path) -> None:
    with pytest.raises(GuardError, match="no image"):
        build_index(BenchmarkData(name="empty", revision="", items=()))
    broken = replace(benchmark.items[1], images=(png(1)[:2000],))
    with pytest.raises(GuardError, match="cannot be decoded"):
        build_index(replace(benchmark, items=(*benchmark.items[2:], broken)))
    without = replace(benchmark.items[1], images=())
    with pytest.raises(GuardError, match="has no image"):
        build_index(replace(benchmark, items=(without,)))
    for expected in (Expected(items=N + 1), Expected(images=3), Expected(revision="other")):
        with pytest.raises(GuardError, match="expected"):
            build_index(benchmark, expected)
    with pytest.raises(GuardError, match="no such folder"):
        build_index(tmp_path / "missing")
    with pytest.raises(GuardError, match="no image"):
        build_index(tmp_path)


def test_a_folder_with_a_picture_of_another_format_is_refused(tmp_path) -> None:
    (tmp_path / "a.png").write_bytes(png(1))
    (tmp_path / "README.md").write_text("a benchmark")
    index = build_index(tmp_path)
    assert index.names.tolist() == ["a.png"]
    assert index.revision.startswith("content-")
    (tmp_path / "b.gif").write_bytes(b"GIF89a")
    with pytest.raises(GuardError, match="gif"):
        build_index(tmp_path)


# -------------------------------------------------------------------------------------------------------- the cascade


def test_the_same_pixels_in_another_file_are_a_copy(guard) -> None:
    buffer = io.BytesIO()
    Image.fromarray(structured(3)).save(buffer, "PNG", compress_level=9)
    found = guard.check_file(buffer.getvalue())
    assert (found.verdict, found.match, found.stage) == ("copy", "item3", "pixel_sha256")


@pytest.mark.parametrize("kind", PLANTABLE)
def test_each_planted_transformation_is_found(guard, kind) -> None:
    for seed in (1, 4):
        data = altered(structured(seed), kind, str(seed))
        for content in ("photograph", "rendered") if TRANSFORMS[kind].hashed else ("photograph",):
            found = guard.check_file(data, content=content)
            assert (found.is_hit, found.match) == (True, f"item{seed}"), (kind, dict(found.evidence))
            if TRANSFORMS[kind].hashed:
                assert (found.verdict, found.stage) == ("copy", "pdq_panels")


def test_a_benchmark_that_holds_the_middle_is_a_crop(guard) -> None:
    inner = structured(2)
    height, width = inner.shape[:2]
    outer = images.resize(structured(55), round(width / 0.8), round(height / 0.8)).copy()
    top, left = (outer.shape[0] - height) // 2, (outer.shape[1] - width) // 2
    outer[top : top + height, left : left + width] = inner
    found = guard.check_file(images.encode_jpeg(outer))
    assert (found.verdict, found.match, found.evidence["panel"]) == ("crop", "item2", "centre80")


def test_a_benchmark_image_with_a_border_is_found_from_the_bare_picture() -> None:
    framed = images.encode_png(bordered(structured(9), generator(0)))
    item = replace_item(framed)
    guard = Guard(build_index(BenchmarkData(name="framed", revision="", items=(item,))))
    assert {"whole", "trimmed"} <= set(guard.index.parts.tolist())
    assert guard.check_file(images.encode_jpeg(structured(9), 80)).verdict == "copy"


def replace_item(data: bytes) -> Item:
    return Item(
        item_id="x",
        category="",
        skill=Skill.OTHER,
        question="q",
        choices=(),
        answer=None,
        prompt="q",
        images=(data,),
    )


def test_other_pictures_are_clean(guard) -> None:
    for seed in range(300, 330):
        found = guard.check_file(png(seed))
        assert found.verdict == "clean"
        assert found.match is None
        assert found.evidence["distance"] > 70
        assert not found.near_miss


def test_what_cannot_be_checked_is_unverifiable_not_clean(guard) -> None:
    flat = images.encode_png(np.full((200, 300, 3), 90, dtype=np.uint8))
    for data, stage in ((flat, "pdq_panels"), (b"", "decode"), (png(300)[:5000], "decode"), (b"GIF89a", "decode")):
        found = guard.check_file(data)
        assert (found.verdict, found.stage) == ("unverifiable", stage)
    # Structure in the middle only: the parts could be compared, the picture could not.
    spot = np.full((400, 600, 3), 90, dtype=np.uint8)
    spot[185:215, 285:315] = images.resize(structured(1), 30, 30)
    assert guard.check_file(images.encode_png(spot)).verdict == "unverifiable"


def test_own_marks_are_painted_over_before_hashing(guard) -> None:
    rgb = structured(5, 128, 128)
    rng = generator(1, "marks")
    marks = [Mark(label="ABCDEF"[i], x=float(x), y=float(y)) for i, (x, y) in enumerate(rng.uniform(15, 113, (6, 2)))]
    drawn = draw_marks(rgb, marks)
    index = build_index(BenchmarkData(name="b", revision="", items=(replace_item(images.encode_png(rgb)),)))
    data = images.encode_png(drawn.rgb)
    bare = Guard(index).check(data, drawn.rgb).evidence["distance"]
    masked = Guard(index).check(data, drawn.rgb, masked=drawn.boxes).evidence["distance"]
    assert masked < bare
    assert (fill(drawn.rgb, drawn.boxes) == drawn.rgb).all(axis=2).mean() > 0.5
    assert (fill(drawn.rgb, [(0, 0, 128, 128)]) == 127).all()
    assert (fill(drawn.rgb, [(-9, -9, 0, 0)]) == drawn.rgb).all()


def test_a_check_does_not_depend_on_what_was_checked_before(guard) -> None:
    files = [png(seed) for seed in (1, 300, 301)] + [images.encode_jpeg(structured(2), 30)]
    once = [guard.check_file(data) for data in files]
    fresh = Guard(guard.index)
    assert [fresh.check_file(data) for data in reversed(files)] == once[::-1]
    # The same pixels under the laxer and the stricter threshold are two questions.
    strict = GuardOptions(threshold_photograph=256, threshold_rendered=0)
    both = Guard(guard.index, strict)
    assert both.check_file(files[1]).verdict != "clean"
    assert both.check_file(files[1], content="rendered").verdict == "clean"


def test_only_what_is_said_to_be_rendered_gets_the_stricter_threshold() -> None:
    assert content_of("rendered") == content_of("drawn") == "rendered"
    assert {content_of(d) for d in ("", "indoor", "indoor_rendered", "RENDERED")} == {"photograph"}


def test_panels_cut_a_collage_at_its_gutter_and_leave_a_sky_alone() -> None:
    left, right = structured(7, 240, 200), structured(8, 240, 330)
    gutter = np.full((240, 12, 3), 255, dtype=np.uint8)
    collage = pdq.working_luma(np.concatenate([left, gutter, right], axis=1))
    parts = {panel.name: panel.luma.shape for panel in panels(collage)}
    assert abs(parts["part1"][1] / parts["part2"][1] - 200 / 330) < 0.05
    sky = np.tile(np.linspace(200, 150, 240, dtype=np.float32)[:, None], (1, 320))
    sky[120:] = pdq.working_luma(structured(9, 240, 320))[120:]
    assert not [panel for panel in frames(sky) if panel.name.startswith("part")]


# ------------------------------------------------------------------------------------------------------- a run's scan


def test_a_source_group_falls_together(guard) -> None:
    views = [
        view(png(1), "copy", "video7"),
        view(png(300), "neighbour", "video7"),
        view(png(301), "other", "video8"),
        view(images.encode_png(np.zeros((64, 64, 3), np.uint8)), "black", "video8"),
    ]
    found = scan(guard, iter(views))
    reasons = [found.reason(v) for v in views]
    assert reasons == ["guard_copy", "guard_group", None, "guard_unverifiable"]
    assert found.rejected_groups == {"video7": views[0].image_id}
    drop = found.drop(views[0])
    assert (drop.stage, drop.image, drop.reason, drop.example) == ("guard", "copy", "guard_copy", "item1")
    assert found.drop(views[2]) is None
    with pytest.raises(GuardError, match="without a check"):
        found.reason(view(png(302)))
    # Shards see parts of a group; together they say the same.
    shards = merge([scan(guard, views[1:2]), scan(guard, [views[0], *views[2:]])])
    assert [shards.reason(v) for v in views] == reasons


def test_the_verdict_line_is_plain_json(guard) -> None:
    line = json.loads(json.dumps(guard.check_file(images.encode_jpeg(structured(1), 50)).line("a/b.jpg")))
    assert set(line) == {"image", "verdict", "match", "stage", "evidence"}
    assert line["image"] == "a/b.jpg"


# --------------------------------------------------------------------------------------------------------------- proof


def test_planted_copies_are_found_and_a_deaf_guard_is_caught(guard, originals, proof) -> None:
    planted = plant.plant(originals, PLANTED, generator(0, "plant"))
    # Half of so small a picture has too few key points: an easier copy takes its place.
    assert set(PLANTABLE) - {copy.transform for copy in planted} == {"crop50"}
    assert plant.plant(originals, PLANTED, generator(0, "plant")) == planted
    assert proof.established
    assert (proof.n, proof.found, proof.missed) == (PLANTED, PLANTED, ())
    deaf = plant.prove(Guard(guard.index, GuardOptions(threshold_rendered=0)), planted, ("rendered",))
    assert deaf.found < deaf.n == sum(TRANSFORMS[copy.transform].hashed for copy in planted)
    assert not deaf.established
    assert deaf.missed[0].distance is not None
    blind = plant.prove(Guard(guard.index, GuardOptions(inliers=10_000)), planted)
    assert not blind.established
    assert {"crop70", "crop90", "rot5"} <= {miss.transform for miss in blind.missed}
    elsewhere = build_index(BenchmarkData(name="other", revision="", items=(replace_item(png(400)),)))
    assert plant.prove(Guard(elsewhere), planted).found == 0
    assert not plant.prove(guard, planted[:9]).established


def test_nothing_can_be_planted_from_flat_images() -> None:
    flat = images.encode_png(np.full((100, 100, 3), 30, dtype=np.uint8))
    with pytest.raises(GuardError, match="planted"):
        plant.plant({"flat": flat, "broken": b""}, 10, generator(0))


# --------------------------------------------------------------------------------------------------------- certificate


def rows(count: int = 30, start: int = 500) -> list[CertifiedRow]:
    made = []
    for n in range(count):
        data = png(start + n % 5)
        made.append(
            CertifiedRow(
                sample_id=f"s{n:03d}",
                task="nearer",
                images=(data,),
                question=f"Which of the points is nearer? ({n})",
                prompt="Which point is closer? A B [3]" if n == 0 else "own words",
                image_ids=(images.image_id(data),),
                group=f"g{n % 5}",
            )
        )
    return made


def certified(guard, proof, made: list[CertifiedRow]) -> dict:
    found = scan(guard, [view(row.images[0], row.sample_id, row.group) for row in made])
    return certify(FACTS, guard, found, proof, survey(made, guard.index, guard))


def test_a_clean_run_is_certified_and_verified(guard, proof, tmp_path) -> None:
    made = rows()
    certificate = certified(guard, proof, made)
    assert certificate["verdict"] == CLEAN
    assert certificate["verdict_reasons"] == []
    stages = {check["stage"]: check["status"] for check in certificate["checks"]}
    assert stages["pdq_panels"] == stages["canary"] == "pass"
    assert stages["sift_ransac"] == stages["warp_correlation"] == "pass"
    assert stages["sscd"] == stages["clip"] == "not_run"
    assert stages["text_residual"] == stages["metadata"] == "pass"
    assert certificate["dataset"]["n_images_unique"] == 5
    assert certificate["template_overlap"]["nearer"] == {"n": 30, "identical_prompt_share": 1 / 30}
    digest = write_certificate(certificate, tmp_path / "certificate.json")
    again = read_certificate(tmp_path / "certificate.json")
    assert write_certificate(again, tmp_path / "twice.json") == digest
    result = verify(reversed(made), again, guard)
    assert result.problems == ()
    assert (result.n_samples, result.n_rechecked) == (30, 20)
    assert verify(made, again, None).n_rechecked == 0


def test_the_limits_do_not_disown_what_is_planted() -> None:
    text = " ".join(LIMITS)
    assert not [kind for kind in PLANTABLE if re.search(rf"\b{kind}\b", text) and kind not in ("collage", "marks")]
    assert "crops below half" in text and "drawings and renders" in text


def test_a_dataset_that_was_changed_is_noticed(guard, proof) -> None:
    made = rows()
    certificate = certified(guard, proof, made)
    swapped = [replace(made[0], question="another"), *made[1:]]
    assert any("manifest" in p for p in verify(swapped, certificate, guard).problems)
    assert any("n_samples" in p for p in verify(made[:-1], certificate, guard).problems)
    planted = [replace(row, images=(images.encode_jpeg(structured(1), 50),)) for row in made]
    assert any("item1" in p for p in verify(planted, certificate, guard).problems)
    broken = [replace(made[0], images=(b"",)), *made[1:]]
    assert any("s000" in p for p in verify(broken, certificate, guard).problems)


def test_a_forged_certificate_contradicts_itself(guard, proof) -> None:
    made = rows()
    certificate = certified(guard, proof, made)
    calibration = {**certificate["calibration"], "planted": {"n": 25, "found": 24}}
    forged = {**certificate, "calibration": calibration}
    assert any("verdict" in p for p in verify(made, forged, guard).problems)
    other = Guard(build_index(BenchmarkData(name="other", revision="", items=(replace_item(png(400)),))))
    assert any("index" in p for p in verify(made, certificate, other).problems)
    assert verify(made, {}, guard).problems


@pytest.mark.parametrize(
    "options",
    [
        GuardOptions(threshold_photograph=59),
        GuardOptions(threshold_rendered=40),
        GuardOptions(min_quality=10),
        GuardOptions(threshold_drawing=20),
        GuardOptions(inliers=12),
    ],
)
def test_a_laxer_guard_establishes_nothing(guard, proof, options) -> None:
    certificate = certified(Guard(guard.index, options), proof, rows())
    assert certificate["verdict"] == NOT_ESTABLISHED
    assert any("looser" in reason for reason in certificate["verdict_reasons"])


def test_what_else_leaves_a_run_not_established(guard, proof) -> None:
    made = rows()
    views = [view(row.images[0], row.sample_id, row.group) for row in made]
    complete, result = scan(guard, views), survey(made, guard.index)

    def verdict(scanned=complete, proven=proof, facts=FACTS, seen=result) -> tuple[str, str]:
        made_out = certify(facts, guard, scanned, proven, seen)
        return made_out["verdict"], " ".join(made_out["verdict_reasons"])

    assert verdict() == (CLEAN, "")
    missed = verdict(proven=replace(proof, found=24))
    assert missed[0] == NOT_ESTABLISHED and "24 of 25" in missed[1]
    assert "at least 10" in verdict(proven=replace(proof, n=5, found=5))[1]
    unscanned = verdict(scanned=scan(guard, views[:4]))
    assert unscanned[0] == NOT_ESTABLISHED and "no clean verdict" in unscanned[1]
    grouped = replace(complete, rejected_groups={"g1": "someone"})
    assert "group g1" in verdict(scanned=grouped)[1]
    assert "provenance" in verdict(facts=replace(FACTS, source_names=("data/BLINK",)))[1]
    hit = survey([*made, replace(made[0], sample_id="val_Counting_12")], guard.index)
    assert "canary" in verdict(seen=hit)[1]
    leaked = survey([*made, replace(made[0], sample_id="z", images=(png(2),))], guard.index, guard)
    assert "file_sha256: fail" in verdict(seen=leaked)[1]
    nameless = survey([*made, replace(made[0], sample_id="z", image_ids=())], guard.index)
    assert "without a source image" in verdict(seen=nameless)[1]
    assert "no image was checked" in certify(FACTS, guard, None, proof, result)["verdict_reasons"][-1]
    easy = {kind: (1, 1) for kind in PLANTABLE if TRANSFORMS[kind].hashed}
    assert "local features" in verdict(proven=replace(proof, n=len(easy), found=len(easy), by_transform=easy))[1]
    outputs = certify(FACTS, guard, None, proof, survey(made, guard.index, guard))
    assert outputs["verdict"] == CLEAN
    assert any("not at hand" in limit for limit in outputs["limits"])
    bare = certify_unguarded(FACTS, result, "typed --unguarded")
    assert bare["verdict"] == NOT_ESTABLISHED
    assert "--unguarded" in bare["verdict_reasons"][0]


def test_counts_of_every_stage_add_up(guard, proof) -> None:
    flat = images.encode_png(np.full((90, 90, 3), 9, dtype=np.uint8))
    views = [view(d, str(i)) for i, d in enumerate((png(1), png(300), flat, b"x", images.encode_jpeg(structured(2))))]
    certificate = certify(FACTS, guard, scan(guard, views), proof, survey([], guard.index))
    counts = {check["stage"]: check.get("sources") for check in certificate["checks"]}
    assert (counts["file_sha256"]["n_checked"], counts["file_sha256"]["n_hits"]) == (4, 1)
    pdq_counts = counts["pdq_panels"]
    assert (pdq_counts["n_checked"], pdq_counts["n_hits"], pdq_counts["n_skipped"]) == (2, 1, 3)
    parts = ("skipped_undecodable", "skipped_decided_earlier", "skipped_low_quality")
    assert [pdq_counts[name] for name in parts] == [1, 1, 1]
    assert certificate["removed"] == {"copy": 2, "crop": 0, "scene": 0, "unverifiable": 2, "text": 0, "groups": 2}


def test_near_misses_are_listed_and_checked_again(guard, proof) -> None:
    made = rows(40)
    wide = Guard(guard.index, GuardOptions(review_photograph=256))
    certificate = certified(wide, proof, made)
    assert {entry["sample"] for entry in certificate["near_misses"]} == {row.image_ids[0] for row in made}
    assert certificate["near_misses"][0]["pdq"] > 60
    assert verify(made, certificate, wide).n_rechecked == 40


def test_canaries_are_found_in_text_and_in_images() -> None:
    assert list(canaries_in_text("from val_Multi-view_Reasoning_12 and TEST_jigsaw_3")) == [
        "val_Multi-view_Reasoning_12",
        "TEST_jigsaw_3",
    ]
    assert list(canaries_in_text("BENCHMARK DATA ... Canary GUID 1-2"))
    for harmless in ("interval_Counting_1", "val_Counting", "the canary sang", "validate_Counting_3"):
        assert not list(canaries_in_text(harmless))
    for compressed in (False, True):
        note = PngImagePlugin.PngInfo()
        note.add_text("Comment", "canary GUID 26b5", zip=compressed)
        buffer = io.BytesIO()
        Image.new("RGB", (40, 40)).save(buffer, "PNG", pnginfo=note)
        assert list(canaries_in_image(buffer.getvalue()))
    exif = Image.Exif()
    exif[0x010E] = "val_Counting_7"
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40)).save(buffer, "JPEG", exif=exif)
    assert list(canaries_in_image(buffer.getvalue()))
    assert not list(canaries_in_image(png(1)))


def test_questions_are_compared_without_letters_and_punctuation() -> None:
    assert normalise_question("Which point\n(A) is  Nearer?") == normalise_question("which POINT is nearer")
    assert normalise_question("A. red\nB. blue") == "red blue"
    assert normalise_question("How many cups?") != normalise_question("How many cans?")


def test_an_undecodable_image_of_the_dataset_is_an_error(guard) -> None:
    with pytest.raises(ImageError):
        survey([replace(rows(1)[0], images=(b"nothing",))], guard.index)


# ---------------------------------------------------------------------------------------------------------- provenance


def test_pools_are_known_by_whole_words_of_their_names() -> None:
    found = {
        pool.data_set.name: pool for pool in pools(["photos/coco_000000000025.jpg", "x/HPatches-release", "vgg16"])
    }
    assert set(found) == {"COCO", "HPatches"}
    assert found["COCO"].data_set.action == "require_scan"
    assert not pools(["blinking.jpg", "rooms", "my photos"])
    for row in table():
        assert row.drawn_on_by, row.name
        assert pools([row.name]), row.name


# -------------------------------------------------------------------------------------------------------- photographs


def test_photographs_copies_found_and_others_clean() -> None:
    if not (DATA / "photos").is_dir():
        pytest.skip("needs ../shared/data/photos")
    index = build_index(DATA / "photos")
    guard = Guard(index)
    named = {name: (DATA / "photos" / name).read_bytes() for name in index.names.tolist()}
    proof = plant.prove(guard, plant.plant(named, 26, generator(5, "plant")))
    assert proof.found == 26, proof.missed
    others = [path for path in sorted((DATA / "photos_gt").iterdir()) if path.suffix in images.SUFFIXES][::6]
    verdicts = {path.name: guard.check_file(path.read_bytes()) for path in others}
    assert len(verdicts) > 15
    assert {found.verdict for found in verdicts.values()} == {"clean"}
    assert min(found.evidence["distance"] for found in verdicts.values()) > 70


def test_rendered_rooms_are_told_apart_and_their_marked_copies_found(rooms_cache: Path) -> None:
    """Sixteen rooms, half of them the benchmark (the first eight are those that other tests render too)."""
    from synth.rooms import store

    seeds = range(1_000_000, 1_000_016)
    store.ensure(seeds, 128, rooms_cache, workers=2)
    views = [[images.encode_png(store.load(s, view, 128, rooms_cache).rgb) for view in (0, 1)] for s in seeds]
    items = tuple(replace(replace_item(pair[0]), item_id=str(n)) for n, pair in enumerate(views[:8]))
    guard = Guard(build_index(BenchmarkData(name="rooms", revision="", items=items)))
    flagged = sum(guard.check_file(d, content="rendered").is_hit for pair in views[8:] for d in pair)
    assert flagged == 0
    names = {str(n): pair[0] for n, pair in enumerate(views[:8])}
    found = [
        guard.check_file(altered(images.decode(data), "marks", name), content="rendered").match
        for name, data in names.items()
    ]
    assert sum(match == name for match, name in zip(found, names, strict=True)) == 8
