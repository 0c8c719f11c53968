"""Measures the contamination guard: recall by transformation, false alarms, milliseconds and bytes an image.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_guard.py [--images 99] [--negatives FOLDER] [--quick] [--swap]

The photographs of ../shared/data/photos and photos_gt are split by source: one part is the benchmark, the other, each
picture as it is and after two random transformations, the negatives (--swap exchanges the parts). --negatives adds a
folder of pictures that are not in the benchmark, such as tiles of wallpapers; --altered says how often each of those is
altered beside the picture as it is. Rendered rooms are negatives too, and their own benchmark. An index of 7,300
images, most of them noisy copies of real descriptors at random places, serves for timing and for the recall of the vote
at that size. What is flagged is drawn on outputs/guard_flagged.png.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from synth import images
from synth.geometry import generator
from synth.guard import bank, features, selftest
from synth.guard.building import build_index
from synth.guard.cascade import Guard
from synth.guard.features import Features
from synth.guard.index import GuardIndex, save_index
from synth.guard.transforms import TRANSFORMS
from synth.guard.votes import Search
from synth.types import Rgb
from tests.scenes import picture_benchmark

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
NEGATIVE_SOURCES = (
    *("nyu", "kitti", "sunrgbd", "tum", "mb03", "mb06", "motorcycle", "aloe", "oakd", "sk_", "unsplash", "nuscenes"),
    *("scenes7", "uoc", "ycbv", "osd", "arkit", "icl"),
)
"""No source stands on both sides, so that no negative shows a scene of the benchmark."""
BLINK_SIZE = 7300


def photographs() -> dict[str, bytes]:
    """Every photograph, by file name."""
    return {
        path.name: path.read_bytes()
        for folder in ("photos", "photos_gt")
        for path in sorted((DATA / folder).iterdir())
        if path.suffix.lower() in images.SUFFIXES
    }


def folder_of(path: Path) -> dict[str, bytes]:
    """Every image below a folder, by its path in it."""
    files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in images.SUFFIXES]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def strangers(index: GuardIndex, negatives: dict[str, bytes], altered: int) -> tuple[selftest.Flag, ...]:
    """What is flagged of pictures that are not in the benchmark, each as it is and altered so many times."""
    guard = Guard(index)
    flagged: list[selftest.Flag] = []
    n = near = unverifiable = 0
    for name in negatives:
        for kind, data in itertools.islice(selftest.altered(name, negatives), 1 + altered):
            found = guard.check_file(data)
            n, near = n + 1, near + found.near_miss
            unverifiable += found.verdict == "unverifiable"
            if found.is_hit:
                flag = selftest.Flag(
                    name=name, transform=kind, match=found.match, verdict=found.verdict, evidence=found.evidence
                )
                flagged.append(flag)
                print(f"  flagged: {name} {kind}: {found.verdict} of {found.match} {dict(found.evidence)}", flush=True)
    print(
        f"further negatives: {len(flagged)} of {n} flagged ({100 * len(flagged) / max(n, 1):.2f} %) from "
        f"{len(negatives)} pictures, {near} near misses, {unverifiable} unverifiable"
    )
    return tuple(flagged)


def room(folder: Path, seed: int, view: int) -> Rgb:
    """One view of a rendered room."""
    with np.load(folder / f"room_{seed:06d}_128px_v1.npz", allow_pickle=False) as file:
        return np.asarray(file["rgb"][view])


def rooms(folder: Path, photos: GuardIndex) -> None:
    """False alarms on rooms: against photographs, and against other rooms with and without local features."""
    seeds = [seed for seed in range(200) if (folder / f"room_{seed:06d}_128px_v1.npz").is_file()]
    if len(seeds) < 20:
        print("fewer than 20 rendered rooms: skipped")
        return
    others = [seed for seed in range(1_000_000, 1_000_200) if (folder / f"room_{seed:06d}_128px_v1.npz").is_file()]
    pictures = {seed: images.encode_png(room(folder, seed, 0)) for seed in seeds}
    guard = Guard(photos)
    hits = {seed: found for seed, data in pictures.items() if (found := guard.check_file(data)).verdict != "clean"}
    print(f"rooms said to be photographs, against photographs: {len(hits)} of {len(seeds)} flagged")
    for seed, found in hits.items():
        print(f"  flagged: room {seed}: {found.verdict} of {found.match} {dict(found.evidence)}")
    views = {f"{seed}/{view}": images.encode_png(room(folder, seed, view)) for seed in others for view in (0, 1)}
    start = time.process_time()
    index = build_index(picture_benchmark(views))
    spent = 1000 * (time.process_time() - start) / len(views)
    own = Guard(index)
    for content in ("rendered", "photograph"):
        start = time.process_time()
        found = [own.check_file(data, content=content) for data in pictures.values()]
        ms = 1000 * (time.process_time() - start) / len(found)
        flagged = sum(one.verdict != "clean" for one in found)
        near = min(int(one.evidence["distance"]) for one in found if "distance" in one.evidence)
        print(
            f"{len(found)} rooms against {len(views)} views of {len(others)} others as {content}: {flagged} flagged; "
            f"nearest PDQ {near}; {ms:.0f} ms a check; index {spent:.0f} ms a view"
        )


def blink_size(index: GuardIndex, named: dict[str, bytes]) -> None:
    """Time, memory and the recall of the vote at 7,300 images, all but the first of them synthetic."""
    rng = np.random.default_rng(0)
    real = [(index.bank.features(n), index.bank.thumbnail(n)) for n in range(index.n_images)]
    pool = index.bank.descriptors.astype(np.float32)
    entries: list[bank.Entry] = [entry if len(entry[0]) else None for entry in real]
    while len(entries) < BLINK_SIZE:
        noisy = pool[rng.integers(0, len(pool), features.MOST)] + rng.normal(0, 25, (features.MOST, 128))
        rows = np.asarray(np.clip(noisy, 0, 255), dtype=np.uint8)
        places = np.column_stack(
            [
                rng.uniform(0, features.SIDE, features.MOST),
                rng.uniform(0, 288, features.MOST),
                2 * np.exp(rng.exponential(0.6, features.MOST)),
                rng.uniform(0, 2 * np.pi, features.MOST),
            ]
        ).astype(np.float32)
        made = Features(descriptors=rows, places=places, width=features.SIDE)
        entries.append((made, np.zeros((72, 96), dtype=np.uint8)))
    start = time.process_time()
    large = bank.build(entries)
    codes = 1000 * (time.process_time() - start) / BLINK_SIZE
    start = time.process_time()
    search = Search(large)
    ready = time.process_time() - start
    n_bytes = sum(getattr(large, name).nbytes for name in bank.Bank.__dataclass_fields__)
    print(
        f"{BLINK_SIZE} images, {len(large.places)} key points: {n_bytes / 2**20:.0f} MiB "
        f"({n_bytes / BLINK_SIZE / 1024:.0f} KiB an image); codes {codes:.1f} ms an image; ready after {ready:.1f} s"
    )
    kinds = ("crop70", "crop50", "rot5", "screenshot", "collage_marks", "flip_crop70_marks")
    names = [name for name in index.names.tolist()[::4] if name in named]
    found, spent = 0, []
    for name in names:
        rgb = images.decode(named[name], min_side=1)
        for kind in kinds:
            copy = images.decode(TRANSFORMS[kind].copy(rgb, rgb, generator(1, name, kind)), min_side=1)
            points = features.extract(features.canonical(copy))
            start = time.process_time()
            aligned = search.align(points)
            spent.append(1000 * (time.process_time() - start))
            found += any(one.inliers >= 8 and index.names[one.owner] == name for one in aligned)
    print(f"vote and geometry at that size: {np.median(spent):.0f} ms; {found} of {len(spent)} hard copies found")
    whole = replace(
        index,
        bank=large,
        names=np.array([*index.names.tolist(), *[""] * BLINK_SIZE])[:BLINK_SIZE],
        rows=rng.integers(0, 256, (BLINK_SIZE, 32), dtype=np.uint8),
        owners=np.arange(BLINK_SIZE, dtype=np.int32),
        parts=np.full(BLINK_SIZE, "whole"),
    )
    photo(Guard(whole), [named[name] for name in names])


def photo(guard: Guard, files: list[bytes]) -> None:
    """Process time of the whole check of strangers: what a clean photograph costs."""
    pictures = [images.decode(data, min_side=1) for data in files]
    strangers = [np.ascontiguousarray(np.rot90(255 - rgb)) for rgb in pictures]
    spent = []
    for rgb in strangers:
        data = images.encode_png(rgb)
        start = time.process_time()
        verdict = guard.check(data, rgb)
        spent.append(1000 * (time.process_time() - start) if verdict.stage == "warp_correlation" else float("nan"))
    print(f"a clean photograph at that size: median {np.nanmedian(spent):.0f} ms, all stages, decoding apart")


def contact_sheet(flags: tuple[selftest.Flag, ...], negatives: dict[str, bytes], named: dict[str, bytes]) -> None:
    """Pairs of a flagged negative and what it was taken for, side by side."""
    if not flags:
        print("nothing was flagged: no contact sheet")
        return
    side = 240
    sheet = Image.new("RGB", (2 * side, side * len(flags)), "white")
    for row, flag in enumerate(flags):
        pair = (dict(selftest.altered(flag.name, negatives))[flag.transform], named.get(flag.match or "", b""))
        for column, data in enumerate(pair):
            if data:
                picture = Image.fromarray(images.decode(data, min_side=1))
                picture.thumbnail((side - 6, side - 6))
                sheet.paste(picture, (column * side, row * side))
    path = ROOT / "outputs" / "guard_flagged.png"
    sheet.save(path)
    print(f"written: {path.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rooms", type=Path, default=ROOT / "outputs" / "cache" / "rooms")
    parser.add_argument("--images", type=int, default=1000, help="benchmark images to copy")
    parser.add_argument("--negatives", type=Path, help="folder of further pictures that are not in the benchmark")
    parser.add_argument("--altered", type=int, default=2, help="alterations of each of those")
    parser.add_argument("--quick", action="store_true", help="neither rooms nor the index of 7,300 images")
    parser.add_argument("--swap", action="store_true", help="exchange benchmark and negatives")
    chosen = parser.parse_args()
    if not (DATA / "photos").is_dir():
        sys.exit("needs ../shared/data/photos")
    everything = photographs()
    one = {name: data for name, data in everything.items() if name.startswith(NEGATIVE_SOURCES)}
    two = {name: data for name, data in everything.items() if name not in one}
    negatives, named = (two, one) if chosen.swap else (one, two)
    start = time.process_time()
    index = build_index(picture_benchmark(named))
    spent = 1000 * (time.process_time() - start) / len(named)
    path = ROOT / "outputs" / "guard_bench_index.npz"
    save_index(index, path)
    size = path.stat().st_size / index.n_images / 1024
    path.unlink()
    print(f"benchmark: {index.n_images} photographs; index {spent:.0f} ms and {size:.0f} KiB an image")
    result = selftest.measure(index, named, negatives, most=chosen.images)
    print(selftest.table(result))
    contact_sheet(result.flagged, negatives, named)
    if chosen.negatives:
        more = folder_of(chosen.negatives)
        contact_sheet(strangers(index, more, chosen.altered), more, named)
    if not chosen.quick:
        rooms(chosen.rooms, index)
        blink_size(index, named)


if __name__ == "__main__":
    main()
