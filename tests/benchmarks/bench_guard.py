"""Measures the contamination guard: recall by transformation, false alarms, milliseconds an image.

    python tests/benchmarks/bench_guard.py [--rooms outputs/cache/rooms]

Benchmark: the photographs of ../shared/data/photos; negatives: those of ../shared/data/photos_gt, each as it is and
after two random transformations. With rendered rooms at hand the distances between them are printed too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from synth import images
from synth.geometry import generator
from synth.guard import pdq, plant
from synth.guard.cascade import Guard, GuardOptions
from synth.guard.index import GuardIndex, build_index
from synth.guard.panels import panels
from synth.types import Rgb

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
Picture = Callable[[Rgb, Rgb, np.random.Generator], Rgb]


def _crop(rgb, side, rng):
    height, width = rgb.shape[:2]
    tall, wide = round(height * side), round(width * side)
    top, left = int(rng.integers(0, height - tall + 1)), int(rng.integers(0, width - wide + 1))
    return rgb[top : top + tall, left : left + wide]


def _rot5(rgb, other, rng):
    turned = Image.fromarray(rgb).rotate(5, Image.Resampling.BILINEAR, expand=True, fillcolor=(0, 0, 0))
    return np.asarray(turned)


def _hue90(rgb, other, rng):
    hsv = np.asarray(Image.fromarray(rgb).convert("HSV")).copy()
    hsv[..., 0] += 64
    return np.asarray(Image.fromarray(hsv, "HSV").convert("RGB"))


def _boxes(rgb, other, rng):
    image = Image.fromarray(rgb)
    pen = ImageDraw.Draw(image)
    for _ in range(3):
        x, y = rng.uniform(0, 0.6, 2) * image.size
        w, h = rng.uniform(0.15, 0.4, 2) * image.size
        pen.rectangle([x, y, x + w, y + h], outline=(255, 0, 0), width=max(2, min(image.size) // 120))
    return np.asarray(image)


def _watermark(rgb, other, rng):
    text = Image.new("L", (110, 110), 0)
    pen = ImageDraw.Draw(text)
    pen.text((5, 50), "SAMPLE PHOTO", fill=255)
    tile = np.tile(np.asarray(text.rotate(30)), (20, 20))[: rgb.shape[0], : rgb.shape[1], None] / 255 * 0.35
    return (rgb * (1 - tile) + 255 * tile).astype(np.uint8)


def _beside(rgb, other, rng):
    height = rgb.shape[0]
    neighbour = images.resize(other, max(1, round(other.shape[1] * height / other.shape[0])), height)
    gutter = np.full((height, 10, 3), 255, np.uint8)
    pair = [rgb, gutter, neighbour]
    return np.concatenate(pair if rng.random() < 0.5 else pair[::-1], axis=1)


def _screenshot(rgb, other, rng):
    page = np.full((800, 1280, 3), 245, np.uint8)
    page[:60] = (60, 80, 120)
    for row in range(100, 780, 22):
        page[row : row + 8, 900 : 900 + int(rng.integers(150, 350))] = 90
    scale = min(
        800 * 0.9 / rgb.shape[0], 820 / rgb.shape[1], (0.36 * 1280 * 800 / (rgb.shape[0] * rgb.shape[1])) ** 0.5
    )
    small = images.resize(rgb, round(rgb.shape[1] * scale), round(rgb.shape[0] * scale))
    page[70 : 70 + small.shape[0], 40 : 40 + small.shape[1]] = small
    return page


def _jigsaw(rgb, other, rng):
    out = rgb.copy()
    out[rgb.shape[0] // 2 :, rgb.shape[1] // 2 :] = 0
    return out


def _stretch(rgb, other, rng):
    return images.resize(rgb, 336, 336)


def _scale(side):
    def apply(rgb, other, rng):
        factor = side / max(rgb.shape[:2]) if side > 1 else side
        return images.resize(rgb, round(rgb.shape[1] * factor), round(rgb.shape[0] * factor))

    return apply


TABLE: dict[str, tuple[Picture, int]] = {
    "identity": (lambda r, o, g: r, 95),
    "jpeg20": (lambda r, o, g: r, 20),
    "resize50": (_scale(0.5), 90),
    "thumb128": (_scale(128), 90),
    "stretch336": (_stretch, 90),
    "crop90": (lambda r, o, g: _crop(r, 0.9, g), 90),
    "crop70": (lambda r, o, g: _crop(r, 0.7, g), 90),
    "crop50": (lambda r, o, g: _crop(r, 0.5, g), 90),
    "hflip": (lambda r, o, g: r[:, ::-1], 90),
    "rot90": (lambda r, o, g: np.rot90(r), 90),
    "rot5": (_rot5, 90),
    "bright": (lambda r, o, g: plant._bright(r), 90),
    "gray": (lambda r, o, g: plant._gray(r), 90),
    "hue90": (_hue90, 90),
    "marks": (lambda r, o, g: plant._marked(r, g), 90),
    "boxes": (_boxes, 90),
    "watermark": (_watermark, 90),
    "border15": (lambda r, o, g: plant._border(r, g), 90),
    "letterbox": (lambda r, o, g: plant._letterbox(r), 90),
    "collage": (_beside, 90),
    "collage_marks": (lambda r, o, g: plant._marked(_beside(r, o, g), g), 75),
    "screenshot": (_screenshot, 90),
    "jigsaw": (_jigsaw, 90),
    "flip_crop70_marks": (lambda r, o, g: plant._marked(np.ascontiguousarray(_crop(r, 0.7, g)[:, ::-1]), g), 90),
}


def load(folder: Path) -> dict[str, Rgb]:
    """name -> (H, W, 3), for the images of a folder."""
    return {
        path.name: images.decode(path.read_bytes())
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in images.SUFFIXES
    }


def copy_of(name: str, kind: str, rgb: Rgb, other: Rgb) -> bytes:
    """The JPEG of a transformed copy; random by name and kind, so that runs agree."""
    picture, quality = TABLE[kind]
    return images.encode_jpeg(np.ascontiguousarray(picture(rgb, other, generator(0, name, kind))), quality)


def recall(guard: Guard, photos: dict[str, Rgb], others: list[Rgb]) -> dict[str, list[int]]:
    """Smallest distance to the right image by transformation, 257 where another image or none was named."""
    found: dict[str, list[int]] = {}
    for number, (name, rgb) in enumerate(photos.items()):
        for kind in TABLE:
            verdict = guard.check_file(copy_of(name, kind, rgb, others[number % len(others)]))
            right = verdict.evidence.get("nearest") == name or verdict.match == name
            distance = verdict.evidence.get("distance", 0) if right else 257
            found.setdefault(kind, []).append(257 if verdict.verdict == "unverifiable" else int(distance))
    return found


def negatives(guard: Guard, photos: dict[str, Rgb]) -> tuple[list[int], list[str], int]:
    """Distances, the names flagged, and the number unverifiable, over each photo clean and twice transformed."""
    distances, flagged, unverifiable = [], [], 0
    names = list(photos)
    for number, (name, rgb) in enumerate(photos.items()):
        kinds = ["identity", *generator(0, name, "kinds").choice(list(TABLE), 2, replace=False)]
        for kind in kinds:
            verdict = guard.check_file(copy_of(name, kind, rgb, photos[names[number - 1]]))
            unverifiable += verdict.verdict == "unverifiable"
            if verdict.is_hit:
                flagged.append(f"{name} {kind} -> {verdict.match} {dict(verdict.evidence)}")
            if isinstance(distance := verdict.evidence.get("distance"), int):
                distances.append(distance)
    return distances, flagged, unverifiable


def milliseconds(index: GuardIndex) -> dict[str, float]:
    """Process time of one uncached check, decoding apart, by image size."""
    out = {}
    rng = np.random.default_rng(0)
    for height, width in ((128, 128), (480, 640), (1536, 2048)):
        pictures = [plant._clouds(height, width, rng) for _ in range(6)]
        guard = Guard(index)
        files = [images.encode_jpeg(rgb, 90) for rgb in pictures]
        guard.check_file(files[0])
        start = time.process_time()
        for data in files[1:]:
            images.decode(data)
        decoded = time.process_time()
        for data in files[1:]:
            guard.check_file(data)
        spent = time.process_time() - decoded
        out[f"{width}x{height}"] = (spent - (decoded - start)) * 1000 / 5
    return out


def _whole(rgb: Rgb) -> pdq.Hashes:
    return pdq.hashes(pdq.working_luma(rgb))[0]


def rooms(folder: Path) -> None:
    """Distances between rendered rooms: distinct rooms, the two views of one, marked and recompressed copies."""
    views = []
    for path in sorted(folder.glob("room_*_128px_v*.npz"))[:150]:
        with np.load(path, allow_pickle=False) as file:
            views.append(tuple(file["rgb"]))
    if len(views) < 20:
        print("fewer than 20 rendered rooms: skipped")
        return
    first = [pair[0] for pair in views]
    bank = np.concatenate([_whole(pair[0])[:1] for pair in views])
    distinct, marked, pairs = [], {}, []
    for number, rgb in enumerate(first):
        packed = [pdq.hashes(p.luma) for p in panels(pdq.working_luma(rgb))]
        table = pdq.distances(np.concatenate([h for h, q in packed if q >= 30]), bank)
        table[:, number] = 257
        distinct.append(int(table.min()))
        other = [pdq.hashes(p.luma) for p in panels(pdq.working_luma(views[number][1]))]
        pairs.append(int(pdq.distances(np.concatenate([h for h, q in other if q >= 30]), bank[[number]]).min()))
        for kind, transform in plant.TRANSFORMS.items():
            copy = images.decode(transform(rgb, generator(0, str(number), kind)), min_side=1)
            queries = [pdq.hashes(p.luma) for p in panels(pdq.working_luma(copy))]
            near = pdq.distances(np.concatenate([h for h, q in queries if q >= 30]), bank[[number]]).min()
            marked.setdefault(kind, []).append(int(near))
    _line(f"{len(first)} rooms, nearest other room (of all panels x 8)", distinct)
    _line("the other view of the room", pairs)
    for kind, values in marked.items():
        _line(f"copy: {kind}", values)


def _line(title: str, values: list[int]) -> None:
    low, middle, high = np.percentile(values, [0, 50, 100]).astype(int)
    extremes = np.percentile(values, [1, 99]).astype(int)
    print(
        f"  {title:52s} n {len(values):5d}  min {low:3d}  1% {extremes[0]:3d}  median {middle:3d}"
        f"  99% {extremes[1]:3d}  max {high:3d}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rooms", type=Path, default=Path("outputs/cache/rooms"))
    chosen = parser.parse_args()
    if not (DATA / "photos").is_dir():
        sys.exit("needs ../shared/data/photos")
    options = GuardOptions()
    index = build_index(DATA / "photos")
    guard = Guard(index, options)
    photos, others = load(DATA / "photos"), load(DATA / "photos_gt")
    print(f"benchmark: {index.n_images} photographs, {len(index.rows)} hashes; {len(others)} negatives x 3")
    print(f"{'transform':20s} {'recall @31':>10s} {'@45':>6s} {'@60':>6s} {'median':>7s} {'max':>4s}")
    for kind, distances in recall(guard, photos, list(others.values())).items():
        values = np.array(distances)
        shares = [100 * float((values <= limit).mean()) for limit in (31, 45, 60)]
        found = values[values <= 256]
        worst = int(found.max()) if len(found) else 257
        print(f"{kind:20s} {shares[0]:10.1f} {shares[1]:6.1f} {shares[2]:6.1f} {int(np.median(values)):7d} {worst:4d}")
    distances, flagged, unverifiable = negatives(guard, others)
    print(f"negatives: {len(flagged)} of {3 * len(others)} flagged, {unverifiable} unverifiable")
    _line("nearest distance of a negative", distances)
    for line in flagged:
        print("  flagged:", line)
    for size, spent in milliseconds(index).items():
        print(f"{size:>10s}: {spent:.1f} ms a check (process time, decoding not counted)")
    rooms(chosen.rooms)


if __name__ == "__main__":
    main()
