"""Depth, detection and segmentation by transformers: tiny real checkpoints, and stand-ins whose answer is known."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from synth import plugins
from synth.errors import BackendError
from synth.geometry import box_iou
from synth.images import resize
from synth.perception import _checkpoint
from synth.perception.masks._fit import box_of
from synth.perception.masks.panoptic import _Segment, matched
from synth.types import Frame, Loss, MetricDepth, PluginOptions, Region, Regions, RelativeDepth
from tests import small_vision
from tests.test_backends import frame_of, ramp, with_options

HF_DEPTH = plugins.load(plugins.DEPTH, "transformers")
HF_REGIONS = plugins.load(plugins.REGIONS, "transformers")
OPEN = plugins.load(plugins.REGIONS, "open_vocabulary")
SAM = plugins.load(plugins.MASKS, "sam")
PANOPTIC = plugins.load(plugins.MASKS, "panoptic")


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny checkpoint, made at its first use."""
    made: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in made:
            made[name] = getattr(small_vision, name)(tmp_path_factory.mktemp("checkpoint") / name)
        return made[name]

    return find


@pytest.fixture(scope="module")
def depth_folder(folder_of: Callable[[str], Path]) -> Path:
    return folder_of("depth_anything")


@pytest.fixture(scope="module")
def detector_folder(folder_of: Callable[[str], Path]) -> Path:
    return folder_of("rt_detr")


def stand_in(runner: object, answer: Callable[..., object]) -> object:
    """The runner with its processor, and `answer` in the place of the network."""
    import torch

    class Model:
        dtype = torch.float32
        config = runner.loaded.model.config

        def __call__(self, **inputs: torch.Tensor) -> object:
            return answer(**inputs)

    return dataclasses.replace(runner, loaded=dataclasses.replace(runner.loaded, model=Model()))


def made_frames() -> list[Frame]:
    rng = np.random.default_rng(1)
    sizes = [(80, 60), (80, 60), (60, 90)]
    return [frame_of(resize(rng.integers(0, 255, (6, 8, 3), dtype=np.uint8), *size)) for size in sizes]


def test_depth_checkpoints_run_at_the_photos_size(depth_folder: Path) -> None:
    import torch
    from transformers import AutoImageProcessor, AutoModelForDepthEstimation

    frames = made_frames()
    maps = HF_DEPTH.load(with_options(HF_DEPTH, path=str(depth_folder), device="cpu"))(frames)
    for frame, depth in zip(frames, maps, strict=True):
        assert isinstance(depth, RelativeDepth)
        assert depth.inverse.shape == frame.rgb.shape[:2] and depth.inverse.dtype == np.float32 and depth.valid.all()
    processor = AutoImageProcessor.from_pretrained(depth_folder)
    model = AutoModelForDepthEstimation.from_pretrained(depth_folder).eval()
    with torch.inference_mode():
        raw = model(**processor(images=frames[2].rgb.copy(), return_tensors="pt")).predicted_depth
        wanted = torch.nn.functional.interpolate(raw[:, None], size=(90, 60), mode="bilinear", align_corners=False)
    assert np.allclose(maps[2].inverse, wanted[0, 0].numpy(), atol=1e-6)
    assert np.ptp(maps[2].inverse) > 0


def test_depth_options_that_change_the_map_change_the_identity(depth_folder: Path) -> None:
    frame = made_frames()[0]
    settings = [{}, {"size": 112}, {"dtype": "bfloat16"}, {"batch_size": 2}]
    chosen = [with_options(HF_DEPTH, path=str(depth_folder), device="cpu", **extra) for extra in settings]
    assert len({HF_DEPTH.identity(options) for options in chosen}) == len(settings)
    said = with_options(HF_DEPTH, path=str(depth_folder), device="cpu", output="relative_inverse")
    assert HF_DEPTH.identity(said) == HF_DEPTH.identity(chosen[0])  # what the config says, said once more
    plain, larger, coarse, _ = (HF_DEPTH.load(options)([frame])[0] for options in chosen)
    assert isinstance(plain, RelativeDepth) and isinstance(larger, RelativeDepth) and isinstance(coarse, RelativeDepth)
    assert not np.array_equal(plain.inverse, larger.inverse)
    assert not np.array_equal(plain.inverse, coarse.inverse)
    assert np.allclose(plain.inverse, coarse.inverse, atol=0.05 * np.ptp(plain.inverse))


# --------------------------------------------------------------------------------------------- what the numbers mean


def test_the_config_says_metres_and_nobody_may_say_otherwise(depth_folder: Path, tmp_path: Path) -> None:
    folder = small_vision.depth_anything(tmp_path / "metric", metric=True)
    frame = made_frames()[0]

    def run(**settings: object) -> object:
        return HF_DEPTH.load(with_options(HF_DEPTH, path=str(folder), device="cpu", **settings))([frame])[0]

    metres, order = run(), run(output="relative")
    assert isinstance(metres, MetricDepth) and 0 < metres.metres.max() <= 20
    assert isinstance(order, RelativeDepth) and np.array_equal(order.inverse, -metres.metres)
    for wrong, where in (("relative_inverse", folder), ("metric", depth_folder), ("relative", depth_folder)):
        with pytest.raises(BackendError, match="the config of this depth_anything checkpoint says") as caught:
            HF_DEPTH.identity(with_options(HF_DEPTH, path=str(where), output=wrong))
        assert "leave perception.depth.output out" in caught.value.fix


def test_where_the_config_is_silent_the_user_must_speak(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("dpt")
    for use in (HF_DEPTH.identity, HF_DEPTH.load):
        with pytest.raises(BackendError, match="does not say what its numbers mean") as caught:
            use(with_options(HF_DEPTH, path=str(folder)))
        assert "--set perception.depth.output=relative_inverse" in caught.value.fix
    kinds = {"relative_inverse": RelativeDepth, "relative": RelativeDepth, "metric": MetricDepth}
    for output, kind in kinds.items():
        options = with_options(HF_DEPTH, path=str(folder), device="cpu", output=output)
        (depth,) = HF_DEPTH.load(options)(made_frames()[2:])
        assert isinstance(depth, kind) and depth.valid.shape == (90, 60)


@pytest.mark.parametrize("family", ["prompt_depth_anything", "chmv2"])
def test_models_that_need_more_than_a_photo_or_give_no_depth_are_refused(tmp_path: Path, family: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(BackendError, match=f"{family} (needs|gives)"):
        HF_DEPTH.identity(with_options(HF_DEPTH, path=str(tmp_path), output="metric"))


@pytest.mark.parametrize(("width", "height"), [(90, 40), (40, 90), (64, 48)])
@pytest.mark.parametrize("name", ["depth_anything", "dpt", "zoedepth"])
def test_depth_lands_where_the_photo_shows_it(
    folder_of: Callable[[str], Path], name: str, width: int, height: int
) -> None:
    """A network that gives back its input: padding that is not taken off again would move the ramp."""
    output = {} if name != "dpt" else {"output": "relative_inverse"}
    runner = HF_DEPTH.load(with_options(HF_DEPTH, path=str(folder_of(name)), device="cpu", **output))
    same = stand_in(runner, lambda pixel_values: SimpleNamespace(predicted_depth=pixel_values[:, 0]))
    (depth,) = same([frame_of(ramp(width, height))])
    processor = runner.loaded.processor
    values = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    grey = (values * processor.image_std[0] + processor.image_mean[0]) * 255
    expected = np.broadcast_to(np.linspace(20, 220, width), (height, width))
    assert np.abs(grey - expected)[2:-2, 4:-4].max() < 6  # the ramp rises by up to 5 a pixel


def test_depth_pro_gives_metres_by_its_field_of_view_only(tmp_path: Path) -> None:
    import torch

    frame = made_frames()[0]
    with_view = small_vision.depth_pro(tmp_path / "with", field_of_view=True)
    runner = HF_DEPTH.load(with_options(HF_DEPTH, path=str(with_view), device="cpu"))
    (real,) = runner([frame])
    assert isinstance(real, MetricDepth) and real.valid.all()
    canonical, degrees = 0.25, 60.0
    known = stand_in(
        runner,
        lambda pixel_values: SimpleNamespace(
            predicted_depth=torch.full((1, 16, 16), canonical), field_of_view=torch.tensor([degrees])
        ),
    )
    (depth,) = known([frame])
    assert np.allclose(depth.metres, 1 / (canonical * 2 * np.tan(np.radians(degrees / 2))), rtol=1e-5)
    without = small_vision.depth_pro(tmp_path / "without", field_of_view=False)
    (depth,) = HF_DEPTH.load(with_options(HF_DEPTH, path=str(without), device="cpu"))([frame])
    assert isinstance(depth, RelativeDepth) and (depth.inverse < 0).all()  # larger is farther, so it is turned
    with pytest.raises(BackendError, match="says relative"):
        HF_DEPTH.identity(with_options(HF_DEPTH, path=str(without), output="metric"))


# ------------------------------------------------------------------------------------------------ how it is run


def test_what_the_device_cannot_do_is_a_message(depth_folder: Path) -> None:
    import torch

    options = with_options(HF_DEPTH, path=str(depth_folder), dtype="float16")
    with pytest.raises(BackendError, match="cannot run the model in float16") as caught:  # noqa: SIM117
        with _checkpoint.inference(options, "perception.depth"):
            raise RuntimeError("\"slow_conv2d_cpu\" not implemented for 'Half'")
    assert caught.value.fix == "--set perception.depth.dtype=float32"
    with pytest.raises(RuntimeError, match="something else"):  # noqa: SIM117
        with _checkpoint.inference(options, "perception.depth"):
            raise RuntimeError("something else")
    if not torch.cuda.is_available():
        with pytest.raises(BackendError, match="no device 'cuda:1'"):
            HF_DEPTH.load(with_options(HF_DEPTH, path=str(depth_folder), device="cuda:1"))
    with pytest.raises(BackendError, match="no input size to change"):
        _checkpoint.sized(SimpleNamespace(size=None), 64, "perception.depth")


def test_a_photo_goes_to_the_device_as_bytes() -> None:
    import torch

    rgb = made_frames()[0].rgb
    rgb.setflags(write=False)
    photo = _checkpoint.to_device(rgb, "cpu")
    assert photo.dtype == torch.uint8 and photo.shape == (3, 60, 80)
    assert np.array_equal(photo.permute(1, 2, 0).numpy(), rgb)


# ------------------------------------------------------------------------------------------------ words

WORDS = ["cat", "dog", "Traffic Light", "t-shirt"]
"""As in the config, and as Grounding DINO reads it: [CLS] cat . dog . traffic light . t - shirt . [SEP]"""


def test_phrases_are_mapped_to_the_list_or_dropped_and_counted(folder_of: Callable[[str], Path]) -> None:
    import torch

    options = with_options(OPEN, path=str(folder_of("grounding_dino")), device="cpu", labels=WORDS, batch_size=2)
    runner = OPEN.load(options)
    spoken = [[6, 5], [8, 9, 10], [5], [1, 3], [1], []]  # the tokens that each box is about

    def answer(pixel_values: torch.Tensor, input_ids: torch.Tensor, **others: torch.Tensor) -> object:
        tokens = runner.loaded.processor.tokenizer.convert_ids_to_tokens(input_ids[0])
        assert tokens == ["[CLS]", "cat", ".", "dog", ".", "traffic", "light", ".", "t", "-", "shirt", ".", "[SEP]"]
        logits = torch.full((len(pixel_values), len(spoken), 24), -9.0)
        for query, places in enumerate(spoken):
            logits[:, query, places] = 2.0 - 0.1 * query
        logits[:, 5, 1] = -1.2  # 0.23: enough for a box, too little for a word
        boxes = torch.tensor([0.5, 0.5, 0.5, 0.2]).expand(len(pixel_values), len(spoken), 4)
        return SimpleNamespace(logits=logits, pred_boxes=boxes)

    for frame, found in zip(made_frames(), stand_in(runner, answer)(made_frames()), strict=True):
        height, width = frame.rgb.shape[:2]
        assert found.vocabulary == tuple(WORDS) and not found.complete
        assert [region.label for region in found.items] == ["Traffic Light", "t-shirt", "cat"]
        assert found.items[0].box == pytest.approx((0.25 * width, 0.4 * height, 0.75 * width, 0.6 * height))
        assert found.losses == (Loss(reason="phrase_unknown", count=3, example="traffic"),)


def test_words_are_compared_on_a_padded_square(folder_of: Callable[[str], Path]) -> None:
    import torch

    runner = OPEN.load(with_options(OPEN, path=str(folder_of("owlv2")), device="cpu", labels=["cat", "dog"]))

    def answer(pixel_values: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> object:
        assert input_ids.shape == (2, 24) and pixel_values.shape[-2:] == (64, 64)
        logits = torch.tensor([[[-2.0, 1.0], [3.0, -1.0], [-3.0, -3.0]]])
        return SimpleNamespace(logits=logits, pred_boxes=torch.tensor([[[0.5, 0.25, 0.5, 0.25]]]).expand(1, 3, 4))

    (found,) = stand_in(runner, answer)([frame_of(ramp(80, 60))])
    assert [(r.label, round(r.score, 3)) for r in found.items] == [("cat", 0.953), ("dog", 0.731)]
    assert found.items[0].box == pytest.approx((20, 10, 60, 30))  # shares of 80 px, both ways


@pytest.mark.parametrize("name", ["grounding_dino", "owlv2"])
def test_free_words_by_the_real_classes(folder_of: Callable[[str], Path], name: str) -> None:
    settings = {"path": str(folder_of(name)), "device": "cpu", "labels": ["cat", "dog"], "min_score": 0.0}
    for batch in (1, 3):
        options = with_options(OPEN, **settings, text_threshold=0.0, batch_size=batch)
        found = OPEN.load(options)(made_frames())
        assert len(found) == 3 and all(r.vocabulary == ("cat", "dog") for r in found)
        assert all(item.label in ("cat", "dog") for r in found for item in r.items)
        assert sum(len(r.items) + sum(loss.count for loss in r.losses) for r in found) > 0
    others = [{"labels": ["dog", "cat"]}, {"min_score": 0.1}, {"text_threshold": 0.3}]
    identities = {OPEN.identity(with_options(OPEN, **{**settings, **other})) for other in [{}, *others]}
    assert len(identities) == 4


def test_a_list_that_the_model_cannot_read_is_refused(folder_of: Callable[[str], Path]) -> None:
    for name, labels, message in (
        ("grounding_dino", [f"cat {'dog ' * n}" for n in range(8)], "the model reads 24"),
        ("owlv2", ["cat", "traffic light on a pole"], "'traffic light on a pole' is"),
    ):
        with pytest.raises(BackendError, match=message) as caught:
            OPEN.load(with_options(OPEN, path=str(folder_of(name)), device="cpu", labels=labels))
        assert caught.value.where == "perception.regions.labels"
    for bad in ([], ["cat", "Cat "], ["a. cat"], [" "]):
        with pytest.raises(ValidationError):
            with_options(OPEN, labels=bad)
    with pytest.raises(BackendError, match="model_type owlv2 is not a panoptic segmenter"):
        PANOPTIC.load(with_options(PANOPTIC, path=str(folder_of("owlv2"))))


# ------------------------------------------------------------------------------------------------ masks


def boxed(*regions: Region) -> Regions:
    return Regions(items=regions, complete=False, backend="made", vocabulary=("cat", "dog"))


@pytest.mark.parametrize("name", ["sam", "sam_hq", "sam2", "sam3"])
def test_a_mask_lies_in_its_box_whatever_the_photos_shape(folder_of: Callable[[str], Path], name: str) -> None:
    """A network that fills the box it is asked about: a box or mask that is scaled wrongly would not come back."""
    import torch

    runner = SAM.load(with_options(SAM, path=str(folder_of(name)), device="cpu"))

    def answer(pixel_values: torch.Tensor, input_boxes: torch.Tensor, multimask_output: bool) -> object:
        assert not multimask_output
        where = torch.arange(64) + 0.5
        x1, y1, x2, y2 = input_boxes[0].T[:, :, None, None]
        inside = (where > x1) & (where < x2) & (where[:, None] > y1) & (where[:, None] < y2)
        return SimpleNamespace(pred_masks=(inside.float() * 2 - 1)[None, :, None])

    for frame in made_frames():
        height, width = frame.rgb.shape[:2]
        boxes = [(5.0 + i, 8.0, width - 9.0, height - 4.0 - i) for i in range(18)]
        items = [Region(label="cat", box=box, score=0.2 if i == 1 else 0.9) for i, box in enumerate(boxes)]
        (masks,) = stand_in(runner, answer)([frame], [boxed(*items)])
        assert masks[1] is None  # below min_score
        for mask, box in ((m, b) for m, b in zip(masks, boxes, strict=True) if m is not None):
            assert mask.shape == (height, width) and mask.dtype == bool
            assert box_iou(box_of(mask), box) > 0.9
    assert runner([frame], [boxed()]) == [()]
    (real,) = runner([frame], [boxed(*items)])
    assert [mask is None for mask in real] == [i == 1 for i in range(18)]


def test_a_segment_serves_one_box_of_its_name() -> None:
    def square(left: int, right: int) -> np.ndarray:
        mask = np.zeros((20, 40), dtype=bool)
        mask[5:15, left:right] = True
        return mask

    segments = [
        _Segment(label=label, mask=square(left, right), box=(left, 5, right, 15))
        for label, left, right in (("cat", 0, 10), ("dining table", 12, 22), ("cat", 30, 40))
    ]
    found = boxed(
        Region(label="cat", box=(0, 5, 11, 15), score=0.5),
        Region(label="cat", box=(0, 5, 10, 15), score=0.9),
        Region(label="dining-table", box=(12, 5, 22, 15), score=0.8),
        Region(label="dog", box=(30, 5, 40, 15), score=0.8),
        Region(label="cat", box=(34, 5, 40, 15), score=0.8),
        Region(label="cat", box=(35, 5, 40, 15), score=0.8),
    )
    masks = matched(found, segments)
    # The surer cat takes the segment; no segment is a dog's; 6/10 of the third cat's box fit, 5/10 of the fourth's not.
    assert [None if mask is None else int(np.flatnonzero(mask.any(0))[0]) for mask in masks] == [
        None, 0, 12, None, 30, None
    ]  # fmt: skip


def test_panoptic_segments_come_at_the_photos_size(folder_of: Callable[[str], Path]) -> None:
    import torch

    runner = PANOPTIC.load(with_options(PANOPTIC, path=str(folder_of("mask2former")), device="cpu", batch_size=2))
    frames = made_frames()
    empty = runner(frames, [boxed(Region(label="cat", box=(1, 1, 9, 9)))] * 3)
    assert [len(masks) for masks in empty] == [1, 1, 1]

    def answer(pixel_values: torch.Tensor, pixel_mask: torch.Tensor | None = None) -> object:
        masks = torch.full((len(pixel_values), 1, 16, 16), -9.0)
        masks[:, 0, 4:12, 8:16] = 9.0
        scores = torch.tensor([9.0, 0.0, 0.0, 0.0]).expand(len(pixel_values), 1, 4)
        return SimpleNamespace(class_queries_logits=scores, masks_queries_logits=masks)

    boxes = [(f.rgb.shape[1] / 2, f.rgb.shape[0] / 4, f.rgb.shape[1], f.rgb.shape[0] * 3 / 4) for f in frames]
    regions = [boxed(Region(label="cat", box=box), Region(label="dog", box=box)) for box in boxes]
    for frame, box, (cat, dog) in zip(frames, boxes, stand_in(runner, answer)(frames, regions), strict=True):
        assert dog is None and cat is not None and cat.shape == frame.rgb.shape[:2]
        assert box_iou(box_of(cat), box) > 0.9


# ------------------------------------------------------------------------------------------------ checkpoints


def test_batches_agree_with_single_photos(depth_folder: Path, detector_folder: Path) -> None:
    frames = made_frames()
    one, three = (
        HF_DEPTH.load(with_options(HF_DEPTH, path=str(depth_folder), device="cpu", batch_size=n))(frames)
        for n in (1, 3)
    )
    assert all(np.allclose(a.inverse, b.inverse, atol=1e-5) for a, b in zip(one, three, strict=True))
    single, batch = (
        HF_REGIONS.load(with_options(HF_REGIONS, path=str(detector_folder), device="cpu", batch_size=n))(frames)
        for n in (1, 3)
    )
    for a, b in zip(single, batch, strict=True):
        assert [item.label for item in a.items] == [item.label for item in b.items]
        assert np.allclose([item.box for item in a.items], [item.box for item in b.items], atol=1e-3)


@pytest.mark.parametrize("name", ["rt_detr", "d_fine", "rf_detr", "detr"])
def test_detector_checkpoints_give_boxes_in_the_photo(folder_of: Callable[[str], Path], name: str) -> None:
    detector_folder = folder_of(name)
    frames = made_frames()[1:]
    options = with_options(HF_REGIONS, path=str(detector_folder), device="cpu", min_score=0.0)
    runner = HF_REGIONS.load(options)
    for frame, found in zip(frames, runner(frames), strict=True):
        assert found is not None and found.vocabulary == ("cat", "dog", "kite") and not found.complete
        scores = [item.score for item in found.items]
        assert scores and scores == sorted(scores, reverse=True)
        height, width = frame.rgb.shape[:2]
        for item in found.items:
            x1, y1, x2, y2 = item.box
            assert 0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height and item.label in found.vocabulary
    strict = dataclasses.replace(runner, options=options.model_copy(update={"min_score": 1.0}))
    assert all(found is not None and not found.items for found in strict(frames[:1]))


@pytest.mark.parametrize("name", ["rt_detr", "d_fine", "rf_detr", "detr"])
def test_a_box_lands_where_the_photo_shows_it(folder_of: Callable[[str], Path], name: str) -> None:
    import torch

    runner = HF_REGIONS.load(with_options(HF_REGIONS, path=str(folder_of(name)), device="cpu", batch_size=3))

    def answer(pixel_values: torch.Tensor, pixel_mask: torch.Tensor | None = None) -> object:
        logits = torch.full((len(pixel_values), 1, 4), -9.0)
        logits[..., 1] = 2.0
        return SimpleNamespace(logits=logits, pred_boxes=torch.tensor([[[0.5, 0.5, 0.5, 0.2]]] * len(pixel_values)))

    for frame, found in zip(made_frames(), stand_in(runner, answer)(made_frames()), strict=True):
        height, width = frame.rgb.shape[:2]
        assert found.items[0].label == "dog" and found.items[0].score > 0.88
        assert found.items[0].box == pytest.approx((0.25 * width, 0.4 * height, 0.75 * width, 0.6 * height))


def test_a_checkpoint_without_some_weights_is_refused(depth_folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((depth_folder / name).read_text())
    tensors = load_file(depth_folder / "model.safetensors")
    gone = next(name for name in tensors if "head" in name)
    save_file({k: v for k, v in tensors.items() if k != gone}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(BackendError, match="1 weights are missing"):
        HF_DEPTH.load(with_options(HF_DEPTH, path=str(tmp_path), device="cpu"))


def test_pickled_weights_are_never_read(depth_folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((depth_folder / name).read_text())
    torch.save(load_file(depth_folder / "model.safetensors"), tmp_path / "pytorch_model.bin")
    with pytest.raises(BackendError, match=r"\*\.safetensors"):
        HF_DEPTH.load(with_options(HF_DEPTH, path=str(tmp_path), device="cpu"))


def test_another_kind_of_checkpoint_is_refused(detector_folder: Path) -> None:
    with pytest.raises(BackendError, match="not a depth checkpoint"):
        HF_DEPTH.load(with_options(HF_DEPTH, path=str(detector_folder), device="cpu", output="metric"))


@pytest.mark.parametrize(
    ("backend", "section", "repo"),
    [
        (HF_DEPTH, "depth", "depth-anything/Depth-Anything-V2-Small-hf"),
        (HF_REGIONS, "regions", "PekingU/rtdetr_v2_r18vd"),
        (OPEN, "regions", "IDEA-Research/grounding-dino-tiny"),
        (SAM, "masks", "facebook/sam2.1-hiera-small"),
        (PANOPTIC, "masks", "facebook/mask2former-swin-tiny-coco-panoptic"),
    ],
    ids=["depth", "regions", "words", "sam", "panoptic"],
)
def test_without_weights_the_message_says_how_to_get_them(backend: object, section: str, repo: str) -> None:
    name = repo.split("/")[1]
    needed = {"labels": ["cat"]} if backend is OPEN else {}
    for settings in ({}, {"path": f"models/{name}"}):
        with pytest.raises(BackendError) as caught:
            backend.load(with_options(backend, **settings, **needed))
        fix = caught.value.fix
        assert (
            fix == f"hf download {repo} --local-dir models/{name}, then --set perception.{section}.path=models/{name}"
        )
        assert caught.value.where == f"perception.{section}.path"


def test_identity_of_a_checkpoint_is_its_content_not_its_place(depth_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / depth_folder.name
    copy.mkdir()
    for file in depth_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    first, second = (HF_DEPTH.identity(with_options(HF_DEPTH, path=str(p))) for p in (depth_folder, copy))
    assert first == second
    config = json.loads((copy / "preprocessor_config.json").read_text())
    (copy / "preprocessor_config.json").write_text(json.dumps({**config, "image_mean": [0.5, 0.5, 0.5]}))
    assert HF_DEPTH.identity(with_options(HF_DEPTH, path=str(copy))) != first


def test_truth_backends_say_what_the_view_knows() -> None:
    frame = made_frames()[0]
    for folder in (plugins.DEPTH, plugins.REGIONS):
        backend = plugins.load(folder, "truth")
        assert backend.exact and backend.load(PluginOptions())([frame]) == [None]
