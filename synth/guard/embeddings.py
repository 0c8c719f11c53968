"""Optional networks that propose benchmark images for a picture: SSCD and open_clip, with weights that the user has.

They only propose. What geometry does not confirm is a near miss, never a hit: SSCD finds hard edits of a copy and calls
many a stranger one, and CLIP compares what pictures are about (Pizzi et al. 2022; Radford et al. 2021). The search over
the benchmark is exact: an approximate one would turn misses into silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from synth.errors import GuardError
from synth.files import sha256_file
from synth.guard.options import GuardOptions
from synth.types import Rgb

NETWORKS = ("sscd", "clip")
"""Stages that run only where the user gives weights."""
PROPOSED = 5
"""Benchmark images at most that a network proposes for one picture."""

_SSCD_SIDE = 320
"""SSCD's own second preprocessing: squashed to a square."""
_MEAN, _DEVIATION = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=np.float32)

Vector = npt.NDArray[np.float32]
"""(D,), unit length."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """One network, loaded."""

    name: str
    """Of the stage: sscd or clip."""
    identity: str
    """Kind, preprocessing and sha256 of the weights: an index holds descriptors of exactly one."""
    similarity: float
    """Cosine from which on a benchmark image is proposed."""
    describe: Callable[[Rgb], Vector]


def load_networks(options: GuardOptions) -> tuple[Network, ...]:
    """The networks whose weights the options name. Raises GuardError for a file that is missing or no such network."""
    found = []
    if options.sscd_weights:
        found.append(_sscd(_weights(options.sscd_weights, "sscd_weights"), options.sscd_similarity))
    if options.clip_weights or options.clip_model:
        if not (options.clip_weights and options.clip_model):
            raise GuardError(
                "open_clip needs both the checkpoint and the name of its architecture",
                where="guard.options",
                fix="set clip_weights and clip_model",
            )
        weights = _weights(options.clip_weights, "clip_weights")
        found.append(_clip(weights, options.clip_model, options.clip_similarity))
    return tuple(found)


def proposed(vector: Vector, vectors: npt.NDArray[np.float32], least: float) -> list[tuple[int, float]]:
    """(row, cosine) of the nearest rows of (N, D) from this cosine on, nearest first."""
    cosines = vectors @ vector
    order = np.argsort(-cosines, kind="stable")[:PROPOSED]
    return [(int(row), float(cosines[row])) for row in order if cosines[row] >= least]


def _weights(text: str, option: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise GuardError("no such file", where=f"guard.options.{option}: {path}", fix="give the path of the weights")
    return path


def _sscd(path: Path, similarity: float) -> Network:
    import torch

    try:
        network = torch.jit.load(str(path), map_location="cpu").eval()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise GuardError(f"no TorchScript file: {reason}", where=str(path), fix="give SSCD's .torchscript.pt") from None

    def describe(rgb: Rgb) -> Vector:
        small = Image.fromarray(rgb).resize((_SSCD_SIDE, _SSCD_SIDE), Image.Resampling.BILINEAR)
        scaled = (np.asarray(small, dtype=np.float32) / 255 - _MEAN) / _DEVIATION
        with torch.inference_mode():
            out = network(torch.from_numpy(scaled.transpose(2, 0, 1)[None]))
        return _unit(out[0].float().numpy(), path)

    identity = f"sscd/{_SSCD_SIDE}/{sha256_file(path)}"
    return Network(name="sscd", identity=identity, similarity=similarity, describe=describe)


def _clip(path: Path, model: str, similarity: float) -> Network:
    try:
        import open_clip
    except ImportError:
        raise GuardError(
            "clip_weights need open_clip", where="guard.options", fix="pip install open_clip_torch"
        ) from None
    import torch

    if model not in open_clip.list_models():
        raise GuardError(
            f"open_clip knows no architecture {model!r}",
            where="guard.options.clip_model",
            fix="python -c 'import open_clip; print(open_clip.list_models())'",
        )
    try:
        network, _, prepare = open_clip.create_model_and_transforms(model, pretrained=str(path))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise GuardError(f"no checkpoint of {model}: {reason}", where=str(path), fix="check clip_model") from None
    network.eval()

    def describe(rgb: Rgb) -> Vector:
        with torch.inference_mode():
            out = network.encode_image(prepare(Image.fromarray(rgb))[None])
        return _unit(out[0].float().numpy(), path)

    return Network(name="clip", identity=f"clip/{model}/{sha256_file(path)}", similarity=similarity, describe=describe)


def _unit(vector: npt.NDArray[np.float32], path: Path) -> Vector:
    length = float(np.linalg.norm(vector))
    if vector.ndim != 1 or not np.isfinite(length) or length == 0:
        raise GuardError(f"it gives {vector.shape} instead of one descriptor", where=str(path), fix="other weights")
    return np.asarray(vector / length, dtype=np.float32)
