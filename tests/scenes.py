"""Made photos with exact truth, for tests that need a whole folder of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from synth.contracts import BenchmarkData
from synth.images import encode_jpeg
from synth.types import Item, Skill

COLOURS = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (50, 70, 200), "yellow": (220, 190, 40)}


def textured(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Smooth noise with edges: enough structure for hashes and corners."""
    small = rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)
    base = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    grain = rng.integers(-18, 18, (height, width, 1))
    return np.clip(base + grain, 0, 255).astype(np.uint8)


def photo_with_truth(
    rng: np.random.Generator, width: int = 320, height: int = 240
) -> tuple[np.ndarray, np.ndarray, list]:
    """(rgb, depth in metres, boxes): a textured ground with flat boxes at known depths."""
    rgb = textured(rng, width, height)
    image = Image.fromarray(rgb)
    pen = ImageDraw.Draw(image)
    depth = np.full((height, width), 9.0, np.float32)
    boxes = []
    columns = rng.permutation(4)
    for k in range(int(rng.integers(2, 5))):
        x, y = 10 + 78 * int(columns[k]), int(rng.integers(10, 130))
        w, h = int(rng.integers(45, 68)), int(rng.integers(60, 95))
        z = float(rng.uniform(1.2, 6.5))
        pen.rectangle([x, y, x + w - 1, y + h - 1], fill=tuple(COLOURS.values())[k], outline=(0, 0, 0))
        for step in range(0, h, 11):
            pen.line([x, y + step, x + w - 1, y + step], fill=(20, 20, 20))
        depth[y : y + h, x : x + w] = z
        boxes.append({"label": "crate", "xyxy": [x, y, x + w, y + h]})
    return np.asarray(image), depth, boxes


def folder_with_truth(folder: Path, n: int, seed: int = 0, group_of: int = 1) -> Path:
    """n photos with truth.jsonl; every `group_of` of them share a source group."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gt").mkdir(exist_ok=True)
    lines = []
    for i in range(n):
        rgb, depth, boxes = photo_with_truth(np.random.default_rng((seed, i)))
        (folder / f"photo_{i:03d}.jpg").write_bytes(encode_jpeg(rgb))
        Image.fromarray((depth * 1000).astype(np.uint16)).save(folder / "gt" / f"photo_{i:03d}.png")
        lines.append(
            {
                "file": f"photo_{i:03d}.jpg",
                "group": f"g{i // group_of}",
                "domain": "made",
                "licence": "CC0-1.0",
                "depth": {"file": f"gt/photo_{i:03d}.png", "scale": 1000.0, "unit": "m"},
                "boxes": boxes,
                "complete": True,
            }
        )
    (folder / "truth.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return folder


def picture_benchmark(pictures: Mapping[str, bytes]) -> BenchmarkData:
    """A benchmark of encoded pictures, one item each."""
    items = tuple(
        Item(
            item_id=name,
            category="",
            skill=Skill.OTHER,
            question="q",
            choices=(),
            answer=None,
            prompt="q",
            images=(data,),
        )
        for name, data in pictures.items()
    )
    return BenchmarkData(name="pictures", revision="", items=items)


def benchmark_folder(folder: Path, n: int, seed: int = 1000) -> Path:
    """A tiny benchmark in the general JSONL format."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for i in range(n):
        (folder / f"bench_{i}.jpg").write_bytes(encode_jpeg(textured(np.random.default_rng((seed, i)), 320, 240)))
        lines.append(
            {
                "item_id": f"b{i}",
                "category": "Relative_Depth",
                "skill": "relative_depth",
                "question": "Which is nearer?",
                "choices": ["A", "B"],
                "answer": "AB"[i % 2],
                "images": [f"bench_{i}.jpg"],
            }
        )
    (folder / "items.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return folder
