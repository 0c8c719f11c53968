"""What the two ONNX plug-ins share: the description of a model's input and output, and how a photo becomes its input.

A model is an .onnx file and a small YAML that says what goes in and what comes out; there is no code per model. The
YAML is `spec` where that is given (a path, or the bare name of a file in configs/models), else <stem>.yaml beside the
model, else the file in configs/models that has the model's name or its sha256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat, model_validator

from synth.config import Config, digest, dump, read_yaml, validate
from synth.errors import BackendError
from synth.images import resize
from synth.types import PluginOptions, Rgb

Tensor = npt.NDArray[np.generic]
_Positive = Annotated[int, Field(gt=0)]
_Triple = tuple[FiniteFloat, FiniteFloat, FiniteFloat]
SPEC_FOLDERS = (Path("configs/models"), Path(__file__).resolve().parents[2] / "configs" / "models")
"""Of the project one works in, and of the checkout."""


class InputSpec(Config):
    """How pixels go in: value = (pixel * scale - mean) / std, in the named colour order."""

    size: tuple[_Positive, _Positive]
    """Width, height."""
    layout: Literal["nhwc", "nchw"] = "nchw"
    dtype: Literal["uint8", "float16", "float32"] = "float32"
    colour: Literal["rgb", "bgr"] = "rgb"
    resize: Literal["stretch", "letterbox"] = "stretch"
    pad: Annotated[int, Field(ge=0, le=255)] = 114
    """Grey value beside a letterboxed picture."""
    corner: Literal["top_left", "centre"] = "top_left"
    """Where a letterboxed picture lies."""
    scale: FiniteFloat = 1.0
    mean: _Triple = (0.0, 0.0, 0.0)
    std: _Triple = (1.0, 1.0, 1.0)


class DepthSpec(Config):
    """One value a pixel comes out."""

    unit: Literal["metres", "relative"]
    larger: Literal["farther", "nearer"]
    scale: FiniteFloat = 1.0
    """metres = value * scale."""
    output: str | None = None
    """Name of the output; the first one by default."""

    @model_validator(mode="after")
    def _metres_grow(self) -> DepthSpec:
        if self.unit == "metres" and (self.larger != "farther" or self.scale <= 0):
            raise ValueError("unit: metres needs larger: farther and a positive scale")
        return self


class DetectSpec(Config):
    """Boxes come out."""

    decoder: Literal["yolox", "boxes_scores"]
    labels: tuple[str, ...] = Field(min_length=1)
    """By class index; "" for an index without a meaning."""
    strides: tuple[_Positive, ...] = (8, 16, 32)
    """yolox: cells of the grids, px of the input."""
    nms_iou: Annotated[float, Field(gt=0, le=1)] | None = None
    """Boxes of one label that overlap more are one object; None for a model that needs no suppression."""
    boxes: str = "boxes"
    scores: str = "scores"
    classes: str = "labels"
    """boxes_scores: names of the outputs (N, 4) xyxy, (N,), (N,), with or without a leading 1."""
    coordinates: Literal["input", "normalised", "image"] = "input"
    """boxes_scores: pixels of the input, shares of the input, or pixels of the image (the model is told its size)."""
    size_input: str | None = None
    """Name of a second input that takes the image's [[width, height]], int64."""


class ModelSpec(Config):
    """A model's input and output."""

    about: str = ""
    licence: str = "unknown"
    sha256: tuple[str, ...] = ()
    """Files that this describes."""
    input: InputSpec
    depth: DepthSpec | None = None
    detect: DetectSpec | None = None


class OnnxOptions(PluginOptions):
    """Which model, and how it is run."""

    path: Path
    """The .onnx file."""
    spec: str | None = None
    """Its description: a YAML file, or a name in configs/models."""
    threads: int = Field(default=0, ge=0)
    """0: as many as onnxruntime likes. Does not change the result."""
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    """onnxruntime's execution providers, first choice first."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A photo laid into a model's input. Input pixel = image pixel * (scale_x, scale_y) + (left, top)."""

    tensor: Tensor
    scale_x: float
    scale_y: float
    left: float
    top: float
    width: int
    height: int
    """Of the picture within the input, px."""


class Session(Protocol):
    """The little of onnxruntime's session that is used."""

    def run(self, output_names: Sequence[str], inputs: dict[str, Tensor]) -> list[Tensor]: ...


@dataclass(frozen=True, kw_only=True)
class Model:
    """An opened model with the names of its inputs and outputs."""

    session: Session
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    spec: ModelSpec


def describe(options: OnnxOptions, where: str) -> tuple[ModelSpec, str]:
    """The model's description, and its identity. Raises BackendError for a missing model or description."""
    path = options.path.expanduser()
    if not path.is_file():
        raise BackendError(f"no model file {str(path)!r}", where=where, fix=f"--set {where}.path=FILE.onnx")
    sha = _sha256(path)
    spec_path = _spec_path(path, sha, options.spec, where)
    spec = validate(read_yaml(spec_path), ModelSpec, str(spec_path))
    # What describes the model for people does not change its results.
    settings = digest(dump(spec.model_copy(update={"about": "", "licence": "", "sha256": ()})), list(options.providers))
    return spec, f"onnx:{path.stem}@{sha[:12]}:{settings[:8]}"


def open_model(options: OnnxOptions, spec: ModelSpec, where: str) -> Model:
    """Start an onnxruntime session and check it against the description. Raises BackendError."""
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        raise BackendError(
            "the package onnxruntime is not installed", where=where, fix="pip install 'see2perceive[onnx]'"
        ) from None
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.log_severity_level = 3  # warnings about the model's author's choices help nobody here
    missing = [name for name in options.providers if name not in onnxruntime.get_available_providers()]
    if missing:
        known = ", ".join(onnxruntime.get_available_providers())
        raise BackendError(f"onnxruntime lacks {', '.join(missing)}", where=f"{where}.providers", fix=f"known: {known}")
    broken = (state.Fail, state.InvalidProtobuf, state.InvalidGraph, state.InvalidArgument, state.NotImplemented)
    try:
        session = onnxruntime.InferenceSession(
            str(options.path.expanduser()), settings, providers=list(options.providers)
        )
    except broken as error:
        raise BackendError(
            f"not a model that onnxruntime can run: {' '.join(str(error).split())}", where=str(options.path)
        ) from None
    _check_input(session.get_inputs()[0].shape, session.get_inputs()[0].type, spec.input, str(options.path))
    return Model(
        session=session,
        inputs=tuple(i.name for i in session.get_inputs()),
        outputs=tuple(o.name for o in session.get_outputs()),
        spec=spec,
    )


def place(rgb: Rgb, spec: InputSpec) -> Placed:
    """Resize a photo (H, W, 3) into a model's input, (1, H, W, 3) or (1, 3, H, W)."""
    full_width, full_height = spec.size
    height, width = rgb.shape[:2]
    inner_width, inner_height, left, top = full_width, full_height, 0, 0
    if spec.resize == "letterbox":
        ratio = min(full_width / width, full_height / height)
        inner_width, inner_height = max(1, round(width * ratio)), max(1, round(height * ratio))
        if spec.corner == "centre":
            left, top = (full_width - inner_width) // 2, (full_height - inner_height) // 2
    canvas = np.full((full_height, full_width, 3), spec.pad, dtype=np.uint8)
    canvas[top : top + inner_height, left : left + inner_width] = resize(rgb, inner_width, inner_height)
    return Placed(
        tensor=_normalised(canvas, spec),
        scale_x=inner_width / width,
        scale_y=inner_height / height,
        left=float(left),
        top=float(top),
        width=inner_width,
        height=inner_height,
    )


def _normalised(canvas: Rgb, spec: InputSpec) -> Tensor:
    pixels = canvas if spec.colour == "rgb" else canvas[..., ::-1]
    array: Tensor = pixels
    if spec.dtype != "uint8":
        mean, std = np.array(spec.mean, dtype=np.float32), np.array(spec.std, dtype=np.float32)
        array = ((pixels.astype(np.float32) * np.float32(spec.scale) - mean) / std).astype(spec.dtype)
    ordered = array if spec.layout == "nhwc" else array.transpose(2, 0, 1)
    return np.ascontiguousarray(ordered[None])


def _check_input(shape: Sequence[int | str | None], kind: str, spec: InputSpec, where: str) -> None:
    width, height = spec.size
    expected = (1, height, width, 3) if spec.layout == "nhwc" else (1, 3, height, width)
    dtype = {"uint8": "tensor(uint8)", "float16": "tensor(float16)", "float32": "tensor(float)"}[spec.dtype]
    fits = len(shape) == 4 and all(not isinstance(a, int) or a == b for a, b in zip(shape, expected, strict=True))
    if not fits or kind != dtype:
        raise BackendError(
            f"the description says input {expected} {spec.dtype}, the model takes {list(shape)} {kind}",
            where=where,
            fix="correct `input` in the model's YAML",
        )


def _spec_path(model: Path, sha: str, spec: str | None, where: str) -> Path:
    if spec is not None:
        named = [Path(spec).expanduser(), *(folder / f"{spec}.yaml" for folder in SPEC_FOLDERS)]
    else:
        named = [model.with_suffix(".yaml"), *(folder / f"{model.stem}.yaml" for folder in SPEC_FOLDERS)]
    for path in named:
        if path.is_file():
            return path
    if spec is None:
        for path in (path for folder in SPEC_FOLDERS for path in sorted(folder.glob("*.yaml"))):
            if sha in validate(read_yaml(path), ModelSpec, str(path)).sha256:
                return path
    looked = ", ".join(str(path) for path in named[:2])
    raise BackendError(
        f"no description of {model.name}: looked for {looked}",
        where=f"{where}.spec",
        fix=f"write {model.stem}.yaml beside the model, after configs/models/yolox_nano.yaml",
    )


def _sha256(path: Path) -> str:
    stat = path.stat()
    return _hashed(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=16)
def _hashed(path: Path, _mtime: int, _size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
