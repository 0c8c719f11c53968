"""VSI-Bench (Yang et al. 2025): rooms filmed by walking through them; its multiple-choice types, on frames.

The table is a copy of nyu-visionx/VSI-Bench; its videos must be cut into frames first, one folder a scene
(`frames/scannet/scene0011_00/00001.jpg` …). An item shows `n_frames` of its scene's frames, evenly spaced. The types
with a numeric answer are counted as skipped. Every frame of every scene stays with the benchmark for the guard, which
can only know a moment of a video that was cut out: use at least one frame a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from synth.benchmarks._choices import letter_of, without_letters
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Row, TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.errors import BenchmarkError
from synth.types import Item, PluginOptions, Progress, Skill, narrow

N_ROWS = 5130
SKILLS = {
    "object_rel_direction_easy": Skill.SPATIAL_RELATION,
    "object_rel_direction_medium": Skill.SPATIAL_RELATION,
    "object_rel_direction_hard": Skill.SPATIAL_RELATION,
    "object_rel_distance": Skill.OTHER,
    "route_planning": Skill.OTHER,
    "obj_appearance_order": Skill.OTHER,
}
NUMERIC = ("object_abs_distance", "object_counting", "object_size_estimation", "room_size_estimation")
_PATTERNS = ("**/test-*.parquet", "**/test.parquet", "**/test.jsonl", "**/*.parquet")
_FRAMES = (".jpg", ".jpeg", ".png")


class Options(TableOptions):
    """Where the table and the frames are."""

    repo: str = "nyu-visionx/VSI-Bench"
    frames: str
    """Folder with one folder of frames a scene, below one folder a data set."""
    n_frames: int = Field(default=16, ge=1)
    """Frames that an item shows, at most."""


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every multiple-choice item with its frames. Raises BenchmarkError where a scene has none."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "vsi_bench", _PATTERNS, chosen.frames)
    harvest = Harvest("vsi_bench", str(table.root))
    frames: dict[str, list[bytes]] = {}
    for row in table.each(progress):
        scene = f"{row.need('dataset')}/{row.need('scene_name')}"
        if scene not in frames:
            names = _frames(Path(chosen.frames).expanduser(), scene)
            frames[scene] = [table.pictures.file(name, row.where) for name in names]
        kind = row.among("question_type", (*SKILLS, *NUMERIC))
        if kind in NUMERIC:
            harvest.skip("numeric answer", row.need("id"), ())
        else:
            harvest.items.append(_item(row, scene, _spaced(frames[scene], chosen.n_frames)))
    harvest.spare |= table.pictures.seen
    counts = {"rows": (len(table.rows), N_ROWS)}
    return harvest.data(table.digest(), counts, chosen.allow_partial, f"{chosen.n_frames}frames")


def _frames(folder: Path, scene: str) -> list[str]:
    found = sorted(path.name for path in (folder / scene).glob("*") if path.suffix.lower() in _FRAMES)
    if not found:
        fix = f"mkdir -p {folder}/{scene} && ffmpeg -i {scene}.mp4 -vf fps=2 {folder}/{scene}/%05d.jpg"
        raise BenchmarkError("no frames of this scene", where=str(folder / scene), fix=fix)
    return [f"{scene}/{name}" for name in found]


def _spaced(frames: Sequence[bytes], n: int) -> tuple[bytes, ...]:
    """The middle frames of n equal parts, or all where there are fewer."""
    if len(frames) <= n:
        return tuple(frames)
    return tuple(frames[(2 * part + 1) * len(frames) // (2 * n)] for part in range(n))


def _item(row: Row, scene: str, images: tuple[bytes, ...]) -> Item:
    kind, question = row.need("question_type"), row.need("question")
    choices = without_letters(row.texts("options"), row.where)
    return Item(
        item_id=row.need("id"),
        category=kind,
        skill=SKILLS[kind],
        question=question,
        choices=choices,
        answer=letter_of(row.get("ground_truth"), choices, row.where),
        prompt=item_prompt(f"These are frames of a video.\n{question}", choices),
        images=images,
        group=scene,
        tags={"pruned": row.get("pruned").lower()} if row.get("pruned") else {},
    )


BENCHMARK = Benchmark(
    name="vsi_bench",
    version=1,
    options=Options,
    licence="Apache-2.0 (the videos keep the terms of ScanNet, ScanNet++ and ARKitScenes)",
    skills=SKILLS,
    human={},
    n_options={},
    choices={},
    load=load,
)
