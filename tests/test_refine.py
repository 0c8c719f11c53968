"""What is done to the plain pass's regions: masks that must fit, labels that must look like their crop."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from synth import plugins
from synth.contracts import MaskBackend, Need, RegionBackend
from synth.errors import BackendError
from synth.perception import clip
from synth.perception.cache import Cache, decode, encode
from synth.perception.consensus import ConsensusOptions
from synth.perception.perceive import Perceiver, losses_of
from synth.perception.refine import MISFIT, UNCHECKED, Refinement, fitted, label_step, mask_step
from synth.recipe import PerceptionConfig
from synth.types import Frame, Loss, Mask, PluginOptions, Region, Regions, Scene, Truth
from tests import small_vision
from tests.test_perception import NO_OPTIONS, frame, same

NEEDS = frozenset({Need.REGIONS})


def filled(shape: tuple[int, int], left: int, top: int, right: int, bottom: int) -> Mask:
    mask = np.zeros(shape, dtype=bool)
    mask[top:bottom, left:right] = True
    return mask


def found(*items: Region, vocabulary: tuple[str, ...] = ("cat", "dog")) -> Regions:
    return Regions(items=items, complete=False, backend="boxes", vocabulary=vocabulary)


# ------------------------------------------------------------------------------------------------ masks


def test_a_mask_that_is_not_the_boxs_is_dropped_and_the_box_stays() -> None:
    own = filled((30, 40), 1, 1, 2, 2)
    regions = found(
        Region(label="fits", box=(10.0, 10.0, 20.0, 20.0)),
        Region(label="just", box=(10.0, 10.0, 20.0, 20.0)),
        Region(label="little", box=(10.0, 10.0, 20.0, 20.0)),
        Region(label="empty", box=(10.0, 10.0, 20.0, 20.0)),
        Region(label="unasked", box=(10.0, 10.0, 20.0, 20.0)),
        Region(label="own", box=(1.0, 1.0, 2.0, 2.0), mask=own),
    )
    masks = (
        filled((30, 40), 10, 10, 20, 20),
        filled((30, 40), 10, 10, 20, 16),  # 0.6 of the box
        filled((30, 40), 10, 10, 19, 16),  # 0.54
        filled((30, 40), 0, 0, 0, 0),
        None,
        filled((30, 40), 0, 0, 30, 30),
    )
    better = fitted(regions, masks, "sam")
    assert [region.box for region in better.items] == [region.box for region in regions.items]
    assert [region.mask is not None for region in better.items] == [True, True, False, False, False, True]
    assert better.items[5].mask is own
    (loss,) = better.losses
    assert (loss.reason, loss.count) == (MISFIT, 2) and loss.example.startswith("little: ") and "0.54" in loss.example
    assert better.backend == "boxes + sam" and same(decode(encode(better, "k"), "k"), better)


class Models:
    """A detector that sees one box in the plain and in the mirrored picture, and a segmenter that fills boxes."""

    def __init__(self, identity: str = "filler-1", off: int = 0) -> None:
        self.passes, self.loads = 0, 0
        self.identity, self.off = identity, off

    def detector(self, exact: bool = False) -> RegionBackend:
        def run(frames: Sequence[Frame]) -> list[Regions | None]:
            return [found(Region(label="cat", box=(4.0, 4.0, 14.0, 14.0))) for _ in frames]

        return RegionBackend(
            name="boxes", version=1, options=PluginOptions, exact=exact, identity=lambda o: "b1", load=lambda o: run
        )

    def segmenter(self) -> MaskBackend:
        def run(frames: Sequence[Frame], regions: Sequence[Regions]) -> list[tuple[Mask | None, ...]]:
            self.passes += len(frames)
            return [
                tuple(filled(f.rgb.shape[:2], *(int(v) for v in r.box)) for r in some.items)
                for f, some in zip(frames, regions, strict=True)
            ]

        def load(options: PluginOptions) -> Callable[..., object]:
            self.loads += 1
            return run

        return MaskBackend(name="filler", version=1, options=PluginOptions, identity=lambda o: self.identity, load=load)


def perceiver(models: Models, cache: Cache | None, *more: Refinement, exact: bool = False) -> Perceiver:
    return Perceiver(
        depth=None,
        regions=(models.detector(exact), NO_OPTIONS),
        matches=None,
        consensus_options=ConsensusOptions(),
        cache=cache,
        refinements=(*more, mask_step(models.segmenter(), NO_OPTIONS)),
    )


def test_only_the_plain_pass_gets_masks_once_and_by_its_own_key(tmp_path: Path) -> None:
    frames = [frame(0), frame(1)]
    models = Models()
    seen = perceiver(models, Cache(tmp_path))
    first = seen.perceive(frames, NEEDS, 0)
    for scene in first:
        assert isinstance(scene, Scene)
        plain, flipped = scene.regions
        assert plain.items[0].mask is not None and plain.items[0].mask.sum() == 100
        assert flipped.items[0].mask is None and losses_of(scene) == []
    assert (models.passes, models.loads) == (2, 1)
    again = Models()
    second = perceiver(again, Cache(tmp_path)).perceive(frames, NEEDS, 0)
    assert same(tuple(first), tuple(second)) and (again.passes, again.loads) == (0, 0)
    other = Models(identity="filler-2")
    perceiver(other, Cache(tmp_path)).perceive(frames, NEEDS, 0)
    assert other.passes == 2
    assert seen.identities() == {"regions/plain": "b1 + filler-1", "regions/flip": "b1"}
    counted = {member.role: (member.images, member.passes, member.cache_hits) for member in seen.stats().members}
    assert counted == {"regions": (2, 2, 0), "masks/filler": (2, 2, 0)}


def test_truth_is_not_refined() -> None:
    models = Models()
    truth = found(Region(label="cat", box=(0, 0, 9, 9)))
    seen = perceiver(models, None, exact=True)
    frames = [frame(0, truth=Truth(regions=truth))]
    (scene,) = seen.perceive(frames, NEEDS, 0)
    assert isinstance(scene, Scene) and scene.regions[0].items[0].mask is None and models.passes == 0
    assert seen.identities() == {"regions/plain": "b1"}


def test_a_mask_of_another_size_is_a_bug() -> None:
    broken = dataclasses.replace(
        Models().segmenter(), load=lambda o: lambda frames, regions: [(filled((3, 3), 0, 0, 1, 1),)]
    )
    step = mask_step(broken, NO_OPTIONS)
    with pytest.raises(ValueError, match="not the photo's size"):
        step.load()([frame(0)], [found(Region(label="cat", box=(0, 0, 9, 9)))])


# ------------------------------------------------------------------------------------------------ labels

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "grey": (90, 90, 90)}


def colour_check(**settings: object) -> clip.LabelCheck:
    """A model that compares mean colours, with a tokenizer that gives each label its number."""
    import torch

    class Colours:
        def encode_image(self, image: torch.Tensor, normalize: bool) -> torch.Tensor:
            return torch.nn.functional.normalize(image.mean(dim=(2, 3)), dim=-1)

        def encode_text(self, text: torch.Tensor, normalize: bool) -> torch.Tensor:
            table = torch.tensor(list(COLOURS.values()), dtype=torch.float32)
            return torch.nn.functional.normalize(table[text], dim=-1)

    names = list(COLOURS)
    options = clip.LabelCheckOptions.model_validate({"context": 0.0, **settings})
    encoder = clip.Encoder(
        model=Colours(),
        tokenizer=lambda texts: torch.tensor([names.index(text.removeprefix("a photo of a ")) for text in texts]),
        device="cpu",
        options=options,
        size=(16, 16),
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        prepare=torch.tensor,
    )
    return clip.LabelCheck(encoder=encoder, options=options)


def painted() -> Frame:
    """Red on the left, green on the right, 100 x 60."""
    rgb = np.zeros((60, 100, 3), dtype=np.uint8)
    rgb[:, :50], rgb[:, 50:] = COLOURS["red"], (0, 255, 60)
    return dataclasses.replace(frame(), rgb=rgb)


def test_a_region_whose_crop_looks_like_another_label_is_dropped_and_counted() -> None:
    vocabulary = ("red", "green", "blue", "grey")
    left, right, small = (5.0, 5.0, 45.0, 45.0), (55.0, 5.0, 95.0, 45.0), (5.0, 5.0, 15.0, 45.0)
    regions = found(
        Region(label="red", box=left),
        Region(label="green", box=left, score=0.7),
        Region(label="green", box=right),
        Region(label="blue", box=small),  # too small to be judged
        Region(label="blue", box=right, score=0.6),
        Region(label="sofa", box=right),  # not of the vocabulary
        vocabulary=vocabulary,
    )

    def kept(**settings: object) -> tuple[list[int], tuple[Loss, ...]]:
        (better,) = colour_check(**settings)([painted()], [regions])
        return [regions.items.index(item) for item in better.items], better.losses

    places, (loss,) = kept(top_k=1, margin=0.0)
    assert places == [0, 2, 3, 5]
    assert (loss.reason, loss.count) == ("label_unlike_crop", 2)
    assert loss.example == "green: rank 3, 0.000; red 1.000"
    assert kept(top_k=1, margin=0.0, batch_size=1) == (places, (loss,))
    assert kept(top_k=3, margin=0.0)[0] == [0, 1, 2, 3, 4, 5]  # the third best of four will do
    assert kept(top_k=2, margin=0.0)[0] == [0, 2, 3, 5]
    assert kept(top_k=1, margin=0.8)[0] == [0, 2, 3, 4, 5]  # blue is 0.74 below green there
    assert kept(top_k=1, margin=0.0, min_side=5)[0] == [0, 2, 5]


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((40.0, 20.0, 60.0, 30.0), (38, 13, 62, 37)),  # wide: a square, with a tenth around
        ((0.0, 0.0, 10.0, 50.0), (0, 0, 35, 55)),  # cut at the edge, never shifted
    ],
)
def test_the_crop_shows_the_whole_box_and_some_of_what_is_around(
    box: tuple[float, float, float, float], expected: tuple[int, int, int, int]
) -> None:
    assert clip.surrounded(box, 100, 60, 0.1) == expected


def test_without_weights_only_the_check_is_lost_and_every_photo_says_so() -> None:
    models = Models()
    step = label_step(clip.LabelCheckOptions(path="models/no-such-model"))
    seen = perceiver(models, None, step)
    for scene in seen.perceive([frame(0), frame(1)], NEEDS, 0):
        assert isinstance(scene, Scene) and scene.regions[0].items[0].mask is not None
        (drop,) = losses_of(scene)
        assert (drop.stage, drop.reason, drop.count, drop.image) == ("perception", UNCHECKED, 1, scene.view.name)
        assert f"hf download {clip.DEFAULT} --local-dir models/no-such-model" in drop.example
        assert "--set perception.labels.path=models/no-such-model" in drop.example
    assert seen.identities()["regions/plain"] == f"b1 + {UNCHECKED} + filler-1"


def test_a_real_model_checks_labels_and_its_content_is_its_identity(tmp_path: Path) -> None:
    import open_clip
    import torch

    folder = small_vision.clip(tmp_path / "clip")
    options = clip.LabelCheckOptions(path=str(folder), device="cpu", top_k=1, margin=0.0, context=0.0)
    check = clip.load(options)
    left, right = (0.0, 0.0, 48.0, 48.0), (50.0, 0.0, 98.0, 48.0)
    likeness = check._likeness(painted(), [left, right], ("cat", "dog"))
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    from PIL import Image

    crops = [Image.fromarray(painted().rgb[0:48, x : x + 48]) for x in (0, 50)]
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(["a photo of a cat", "a photo of a dog"])
    with torch.inference_mode():
        images = model.eval().encode_image(torch.stack([preprocess(crop) for crop in crops]), normalize=True)
        texts = model.encode_text(tokens, normalize=True)
    assert np.allclose(likeness, (images @ texts.T).numpy(), atol=1e-3)
    others = [{"top_k": 2}, {"margin": 0.5}, {"prompt": "{label}"}, {"min_side": 9}, {"context": 0.3}]
    identities = {clip.identity(options.model_copy(update=other)) for other in [{}, *others]}
    assert len(identities) == 6
    (folder / "open_clip_model.safetensors").rename(folder / "model.safetensors")
    with pytest.raises(BackendError, match=r"no open_clip_model\.safetensors"):
        clip.identity(options)


def test_a_recipe_names_both_and_neither_is_on_by_itself() -> None:
    assert PerceptionConfig().labels is None and PerceptionConfig().masks is None
    chosen = PerceptionConfig.model_validate({"labels": {"top_k": 3}, "masks": {"name": "sam"}})
    assert chosen.labels is not None and chosen.labels.top_k == 3
    assert chosen.masks is not None and chosen.masks.name in plugins.names(plugins.MASKS)
