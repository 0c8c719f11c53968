"""What happens to the chosen questions of one shard: they are drawn, looked at by the guard, and become rows.

Idempotent like the work on a shard: a file that exists is done, and the same spec gives the same bytes in any process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from synth.config import digest
from synth.contracts import Need
from synth.dataset.candidates import Candidate, candidate_of
from synth.dataset.rows import Row, draw, record, schema, to_tables
from synth.dataset.shards import PICTURES_AT_ONCE, ShardNote, iterate, write_shard
from synth.guard.options import content_of
from synth.manifest import merge_drops
from synth.types import Drop, JsonValue, Scene, SecondView, SourceItem
from synth.work import Kit, ShardSpec, kit_of, partners_of_photo, read_seen


@dataclass(frozen=True, kw_only=True)
class DrawSpec:
    """The candidates of one shard that are to be drawn."""

    shard: ShardSpec
    chosen: frozenset[str]
    """Their qa_ids."""

    @property
    def path(self) -> Path:
        """Where the rows go: named by what was chosen, so that a file under this name holds just that."""
        return self.shard.folder / f"drawn-{self.shard.number:05d}-{digest(sorted(self.chosen))[:12]}.parquet"


def draw_shard(spec: DrawSpec) -> None:
    """Draw, guard and commit the chosen candidates of one shard."""
    if spec.path.exists():
        return
    started = time.process_time()
    kit = kit_of(spec.shard)
    by_key: dict[str, list[Candidate]] = {}
    for line in iterate(spec.shard.shard_path):
        if line["qa_id"] in spec.chosen:
            candidate = candidate_of(line)
            by_key.setdefault(candidate.key, []).append(candidate)
    rows: list[dict[str, object]] = []  # pixels of a whole shard would be most of the memory
    drops: list[Drop] = []
    outputs: dict[str, list[dict[str, JsonValue]]] = {}
    counts: Counter[str] = Counter()
    for item in spec.shard.items:
        for candidate, scene in _scenes(kit, spec, by_key.get(item.key, []), item):
            row, verdicts = _row(kit, candidate, scene, spec.shard)
            counts["pictures"] += len(candidate.qa.panels)
            if row is None:
                found = next(verdict for verdict in verdicts if verdict["verdict"] != "clean")
                reason = f"output_{found['verdict']}"
                example = str(found["match"] or found["stage"])
                name = scene.view.name
                drops.append(Drop(stage="guard", task=candidate.qa.task, image=name, reason=reason, example=example))
                continue
            rows.append(record(row))
            if verdicts:
                outputs[candidate.qa.qa_id] = verdicts
    rows.sort(key=lambda row: str(row["qa_id"]))
    note = ShardNote(
        run=spec.shard.run,
        shard=spec.shard.number,
        fates={},
        drops=merge_drops(drops),
        counts={**counts, "cpu_seconds": round(time.process_time() - started, 3)},
        outputs=outputs,
    )
    write_shard(spec.path, schema(), to_tables(rows, PICTURES_AT_ONCE), note)


def _scenes(
    kit: Kit, spec: DrawSpec, candidates: list[Candidate], item: SourceItem
) -> Iterator[tuple[Candidate, Scene]]:
    """Each candidate of one image with the pictures that it shows; what was perceived is not needed again."""
    if not candidates:
        return
    frame = read_seen(spec.shard, kit.stages, item)
    shown = {panel.image for one in candidates for panel in one.qa.panels}
    needs = frozenset({Need.PAIR} if "pair" in shown else ())
    (scene,) = kit.perceiver.perceive([frame], needs, spec.shard.recipe.seed)
    if isinstance(scene, Drop):
        raise TypeError(f"{item.key}: no second picture, and there was one when the question was made")
    if "second" in shown:
        others = partners_of_photo(item.key, spec.shard, kit.stages, drops=[])  # noted when the questions were made
        scene = replace(scene, seconds=tuple(SecondView(view=other.view, rgb=other.rgb) for other in others))
    yield from ((candidate, scene) for candidate in candidates)


def _row(
    kit: Kit, candidate: Candidate, scene: Scene, shard: ShardSpec
) -> tuple[Row | None, list[dict[str, JsonValue]]]:
    """The row and the guard's word on each of its pictures, our own marks masked; no row where one is not clean."""
    view = scene.view
    pictures = draw(candidate.qa, scene, shard.recipe.output.image_format)
    verdicts: list[dict[str, JsonValue]] = []
    if kit.guard is not None:
        content = content_of(view.domain)
        found = [kit.guard.check(p.data, p.rgb, p.drawn, content) for p in pictures]
        verdicts = [dict(asdict(verdict)) for verdict in found]
        if any(verdict.verdict != "clean" for verdict in found):
            return None, verdicts
    row = Row(
        qa=candidate.qa,
        pictures=pictures,
        source=view.source,
        source_name=view.name,
        group=view.group,
        licence=view.licence,
        domain=view.domain,
        role=candidate.role,
        guarded=kit.guard is not None,
        others=tuple(scene.seconds[panel.number].view for panel in candidate.qa.panels if panel.image == "second"),
    )
    return row, verdicts
