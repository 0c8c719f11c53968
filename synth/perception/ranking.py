"""Which photos of a large source are worth a look: open_clip ranks them by what the plan's tasks want to see, in words.

Most of a hundred thousand photos are useless for a skill: nothing to count, one flat thing, a screenshot. A photo's
margin for a task is its cosine similarity to the best of the task's own captions (`Task.wants`) minus that to the best
of `unwanted` (zero-shot as in Radford et al., arXiv 2103.00020; weights by open_clip). Similarities to different
captions are not on one scale, so margins are compared within a task only: a group of photos takes its best place in
the lists of all tasks, and a list is walked as fast as its quota is large. Part of what is kept is drawn at random from
all photos: the set is not only what CLIP likes, and the manifest can put the pairs of one such photo beside the pairs
of one that was ranked. How well words pick useful photos depends on weights and photos; that comparison tells it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from pydantic import Field, field_validator

from synth.config import PluginChoice, digest, dump, resolve
from synth.contracts import Source, Task
from synth.errors import ImageError, RunError
from synth.files import write_json
from synth.findings import Quota
from synth.images import decode
from synth.perception import _checkpoint, clip
from synth.perception.cache import Cache, Vector, key_of
from synth.plugins import SOURCES
from synth.types import Drop, JsonValue, PluginOptions, SourceItem

if TYPE_CHECKING:
    import torch

WHERE = "ranking"
VERSION = 1
LOW = "ranked_low"
"""Reason of a drop: other photos promise more."""
READERS = 2
"""Threads that read and decode."""
_DIGITS = 5
"""Of a similarity: the last bits of float32 depend on which photos share a batch, and no place may depend on them."""
_Group: TypeAlias = tuple[str, str]


class RankingOptions(_checkpoint.CheckpointOptions):
    """Which CLIP model ranks, and how many photos a run takes. A source group is kept whole or not at all."""

    path: str = ""
    """A local folder as open_clip publishes them, or a model id of the hub; "": no weights, and nothing is ranked."""
    size: None = None
    """The model's own."""
    batch_size: int = Field(default=32, ge=1)
    keep: int | float = 0.5
    """A share (0.5; 1.0 is all) or a number (2000; 1 is one photo) of the photos that can be decoded."""
    random_share: float = Field(default=0.25, ge=0, le=1)
    """At least this share of `keep` is drawn from all photos, whatever their place."""
    unwanted: tuple[str, ...] = ("a screenshot", "a document", "a logo", "a drawing")
    """Captions of what no task can use."""

    @field_validator("keep")
    @classmethod
    def _some(cls, keep: int | float) -> int | float:
        if keep <= 0 or (isinstance(keep, float) and keep > 1):
            raise ValueError("a share above 0 and up to 1.0, or a whole number of photos")
        return keep

    def number(self, n: int) -> int:
        """How many of `n` photos are kept."""
        return min(n, self.keep) if isinstance(self.keep, int) else _at_least(self.keep * n)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What is wanted, by which model: all that the places of a given set of photos depend on."""

    options: RankingOptions
    wants: Mapping[str, tuple[str, ...]]
    """Task -> its captions; tasks that any photo serves are left out."""
    weights: Mapping[str, float]
    """Task -> its share of the pairs wanted."""
    model: str
    """Identity of the checkpoint's content and how it is run."""

    @property
    def prompts(self) -> tuple[str, ...]:
        """Every caption once."""
        wanted = (text for texts in self.wants.values() for text in texts)
        return tuple(dict.fromkeys([*wanted, *self.options.unwanted]))

    @property
    def identity(self) -> str:
        """Of settings, captions, quotas and weights; which device runs them does not count."""
        settings = {**dump(self.options), "path": "", "revision": None, "device": ""}
        wants: dict[str, JsonValue] = {task: list(texts) for task, texts in self.wants.items()}
        return digest(VERSION, settings, wants, dict(self.weights), self.model)

    def margins(self, likeness: Sequence[float]) -> dict[str, float]:
        """Task -> best wanted minus best unwanted similarity of one photo; `likeness` in the order of `prompts`."""
        of = dict(zip(self.prompts, likeness, strict=True))
        bad = max((of[text] for text in self.options.unwanted), default=0.0)
        return {task: max(of[text] for text in texts) - bad for task, texts in self.wants.items()}


@dataclass(frozen=True, kw_only=True)
class Unranked:
    """Every photo is taken, and why."""

    status: Literal["not asked", "not_run"]
    why: str = ""
    identity: str = ""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """What the run goes on with."""

    kept: tuple[SourceItem, ...]
    """In the source's order; photos that cannot be decoded stay among them, so that the run says why they fall."""
    drops: tuple[Drop, ...] = ()
    """One a photo, with its margins and its group's place."""
    best: tuple[SourceItem, ...] = ()
    drawn: tuple[SourceItem, ...] = ()
    """Kept by lot, whatever their place."""
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RankSpec:
    """One unit of work and of commit. Everything in it can be pickled."""

    source: PluginChoice
    ranking: Ranking
    cache: str | None
    run: str
    number: int
    items: tuple[SourceItem, ...]
    folder: Path
    """The run's work folder."""

    @property
    def path(self) -> Path:
        """Where the similarities go."""
        return self.folder / f"rank-{self.number:05d}.json"


def ranking_of(
    options: RankingOptions | None, tasks: Mapping[str, Task], quotas: Sequence[Quota]
) -> Ranking | Unranked:
    """What the recipe asks for. Raises BackendError for a checkpoint that is named and not here."""
    if options is None:
        return Unranked(status="not asked")
    if not options.path:
        fix = _checkpoint.advice(f"models/{Path(clip.DEFAULT).name}", WHERE, clip.DEFAULT)
        return Unranked(status="not_run", why=f"no weights are given ({fix})")
    asked = Counter[str]()
    for quota in quotas:
        asked[quota.task] += quota.n
    wants = {name: task.wants for name, task in sorted(tasks.items()) if task.wants and asked[name]}
    if not wants:
        return Unranked(status="not_run", why="no task of the plan says what it wants to see")
    total = sum(asked[name] for name in wants)
    return Ranking(
        options=options,
        wants=wants,
        weights={name: asked[name] / total for name in wants},
        model=clip.encoder_identity(options, WHERE),
    )


def rank_shard(spec: RankSpec) -> None:
    """Compare every photo of the shard with every caption, and commit. A photo that the cache knows is not read."""
    if spec.path.exists():
        return
    source, options = resolve(spec.source, SOURCES, "source")
    cache = Cache(Path(spec.cache)) if spec.cache else None
    known = {item.key: cache.get_vector(_key(spec, item.fingerprint, "image")) for item in spec.items} if cache else {}
    vectors = {key: vector for key, vector in known.items() if vector is not None}
    todo = [item for item in spec.items if item.key not in vectors]
    n_known, size = len(vectors), spec.ranking.options.batch_size
    for start in range(0, len(todo), size):
        seen = _look(todo[start : start + size], source, options, spec.ranking.options)
        for item in todo[start : start + size]:
            if item.key in seen:
                vectors[item.key] = seen[item.key]
                if cache:
                    cache.put_vector(_key(spec, item.fingerprint, "image"), seen[item.key])
    texts = _texts(spec, cache)
    likeness = {
        item.key: [round(float(value), _DIGITS) for value in texts @ vectors[item.key]]
        for item in spec.items
        if item.key in vectors
    }
    counts: dict[str, JsonValue] = {
        "ranking: images looked at": len(vectors) - n_known,
        "ranking: cache hits": n_known,
        "ranking: cache entries not written": cache.stats().unwritten if cache else 0,
    }
    unreadable: list[JsonValue] = [item.key for item in spec.items if item.key not in vectors]
    write_json(spec.path, {"run": spec.run, "likeness": likeness, "unreadable": unreadable, "counts": counts})


def read_shards(specs: Sequence[RankSpec]) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Source key -> similarities, and counters. Raises RunError for a file of another run or of other photos."""
    likeness: dict[str, list[float]] = {}
    counts: dict[str, float] = {}
    for spec in specs:
        value = json.loads(spec.path.read_text(encoding="utf-8"))
        if value["run"] != spec.run:
            raise RunError("places of another run", where=str(spec.path), fix="use a new --out folder")
        if {item.key for item in spec.items} != {*value["likeness"], *value["unreadable"]}:
            raise RunError(
                "not the photos of this shard", where=str(spec.path), fix="delete this file and run the same command"
            )
        likeness |= value["likeness"]
        counts = {name: counts.get(name, 0.0) + n for name, n in value["counts"].items()}
    return likeness, counts


def forget() -> None:
    """Let the model leave this process's memory: the ranking is over."""
    _encoder.cache_clear()


def choose(items: Sequence[SourceItem], likeness: Mapping[str, Sequence[float]], ranking: Ranking, seed: int) -> Ranked:
    """The best photos and some drawn by lot, in whole source groups: the last group may go beyond the number.

    `likeness`: source key -> similarities in the order of the prompts. Photos without are passed on and not counted.
    The result depends on nothing else, and equal places go by group and key.
    """
    groups: dict[_Group, list[SourceItem]] = {}
    for item in items:
        if item.key in likeness:
            groups.setdefault((item.group, "" if item.group else item.key), []).append(item)
    wanted = ranking.options.number(len(likeness))
    margins = {key: ranking.margins(row) for key, row in likeness.items()}
    order = _order(groups, margins, ranking.weights)
    lots = sorted(groups, key=lambda group: digest(seed, WHERE, *group))
    drawn = _whole(lots, groups, _at_least(ranking.options.random_share * wanted))
    n_drawn = sum(len(groups[group]) for group in drawn)
    best = _whole([group for group in order if group not in drawn], groups, wanted - n_drawn)
    chosen = drawn | best
    drops = [
        Drop(
            stage=WHERE,
            task="",
            image=item.key,
            reason=LOW,
            example=f"place {place} of {len(order)}: "
            + ", ".join(f"{task} {margin:+.{_DIGITS}f}" for task, margin in margins[item.key].items()),
        )
        for place, group in enumerate(order, start=1)
        if group not in chosen
        for item in groups[group]
    ]
    low = {drop.image for drop in drops}
    return Ranked(
        kept=tuple(item for item in items if item.key not in low),
        drops=tuple(drops),
        best=tuple(item for group in groups if group in best for item in groups[group]),
        drawn=tuple(item for group in groups if group in drawn for item in groups[group]),
    )


def section(ranking: Ranking | Unranked, ranked: Ranked, pairs: Mapping[str, int]) -> dict[str, JsonValue]:
    """The manifest's word on it. `pairs`: source group -> pairs in the dataset."""
    if isinstance(ranking, Unranked):
        return {"status": ranking.status, **({"why": ranking.why} if ranking.why else {})}
    scored = len(ranked.best) + len(ranked.drawn) + len(ranked.drops)
    return {
        "status": "run",
        "model": ranking.model,
        "wants": {task: list(texts) for task, texts in ranking.wants.items()},
        "unwanted": list(ranking.options.unwanted),
        "images": {
            "scored": scored,
            "best": len(ranked.best),
            "random": len(ranked.drawn),
            LOW: len(ranked.drops),
            "not_scored": len(ranked.kept) - len(ranked.best) - len(ranked.drawn),
        },
        "pairs_per_image": {
            "best": _pairs_per_image(ranked.best, pairs),
            "random": _pairs_per_image(ranked.drawn, pairs),
        },
    }


def _pairs_per_image(items: Sequence[SourceItem], pairs: Mapping[str, int]) -> float | None:
    """None where no photo has a group by which its pairs could be found."""
    known = [item.group for item in items if item.group]
    return round(sum(pairs.get(group, 0) for group in set(known)) / len(known), 3) if known else None


def _order(
    groups: Mapping[_Group, Sequence[SourceItem]],
    margins: Mapping[str, Mapping[str, float]],
    weights: Mapping[str, float],
) -> list[_Group]:
    """Groups, the best first."""
    names = sorted(groups)
    places = []
    for task, weight in weights.items():
        mean = np.array([np.mean([margins[item.key][task] for item in groups[name]]) for name in names])
        rank = 1 + np.searchsorted(np.sort(-mean), -mean)
        places.append(rank / weight)
    by_group = np.sort(np.array(places), axis=0).T.tolist()
    return [name for _, name in sorted(zip(by_group, names, strict=True))]


def _whole(order: Sequence[_Group], groups: Mapping[_Group, Sequence[SourceItem]], n: int) -> set[_Group]:
    """Groups in their order until they hold `n` photos."""
    taken: set[_Group] = set()
    for group in order:
        if n <= 0:
            break
        taken.add(group)
        n -= len(groups[group])
    return taken


def _at_least(n: float) -> int:
    """The next whole number; 0.1 * 30 is 3 and not 4."""
    return math.ceil(round(n, 9))


def _key(spec: RankSpec, content: str, kind: str) -> str:
    return key_of(content, "clip", VERSION, spec.ranking.model, kind)


@lru_cache(maxsize=1)
def _encoder(options: RankingOptions) -> clip.Encoder:
    return clip.load_encoder(options, WHERE)


def _texts(spec: RankSpec, cache: Cache | None) -> Vector:
    """(prompts, dimensions)."""
    prompts = spec.ranking.prompts
    keys = [_key(spec, text, "text") for text in prompts]
    known = [cache.get_vector(key) if cache else None for key in keys]
    vectors = [vector for vector in known if vector is not None]
    if len(vectors) < len(prompts):
        vectors = list(_encoder(spec.ranking.options).read(prompts))
        for key, vector in zip(keys, vectors, strict=True):
            if cache:
                cache.put_vector(key, vector)
    return np.stack(vectors)


def _look(
    items: Sequence[SourceItem], source: Source, source_options: PluginOptions, options: RankingOptions
) -> dict[str, Vector]:
    """One batch: source key -> vector; photos that cannot be decoded are left out."""
    from PIL import Image

    encoder = _encoder(options)

    def ready(item: SourceItem) -> torch.Tensor | None:
        try:
            return encoder.prepare(Image.fromarray(decode(source.load(item, source_options).data)))
        except ImageError:
            return None

    with ThreadPoolExecutor(READERS) as pool:
        inputs = list(pool.map(ready, items))
    readable = [(item.key, picture) for item, picture in zip(items, inputs, strict=True) if picture is not None]
    if not readable:
        return {}
    vectors = encoder.look([picture for _, picture in readable])
    return {key: vector for (key, _), vector in zip(readable, vectors, strict=True)}
