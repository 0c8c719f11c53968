"""One round of the loop, then the next: evaluate, diagnose, plan, generate, train (with a control arm), compare.

Each step writes its file whole and is skipped when that file exists, so a killed run goes on where it stopped. The
run's settings are pinned in `loop.json`: a folder of other settings is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from finetune.arms import ArmConfig, Changes, ControlConfig, Measures, Trainings, run_arms
from finetune.compare import Comparison, GateOptions, Rerun, compare, comparison_to_json
from finetune.evaluate import EvaluateOptions, evaluate
from finetune.looking import errors_of, load_seen, looking_json, looking_of
from finetune.merging import merge_adapter
from finetune.power import power_json
from finetune.respondents import LocalModel
from finetune.sensitivity import SensitivityOptions, sensitivity
from finetune.train import TrainSettings
from synth.audit.leaks import check_shortcuts
from synth.config import Config, PluginChoice, digest, dump, resolve
from synth.contracts import Benchmark, BenchmarkData
from synth.diagnosis.blindness import SensitivityFile
from synth.diagnosis.folds import fold_for_round, held_out, planning
from synth.diagnosis.paired import by_skill_of, cells_json, cells_of, paired
from synth.diagnosis.profile import make_profile, profile_to_json
from synth.diagnosis.reading import load_outcomes
from synth.errors import RunError
from synth.files import write_json
from synth.findings import Plan
from synth.pipeline import generate
from synth.plan import PlanOptions, load_plan, make_plan, save_plan
from synth.plugins import BENCHMARKS, TASKS, load_all
from synth.progress import Silent
from synth.recipe import GuardConfig, Recipe
from synth.report.run import write_run_report
from synth.types import Item, JsonValue, Outcome, Reporter, Skill


class LaterRound(Config):
    """What differs in one round after the first."""

    plan: PlanOptions | None = None
    """None: as in the first round."""
    train: Changes = Field(default_factory=dict)
    """Settings of `train` that differ."""
    arms: dict[str, ArmConfig] | None = None
    controls: dict[str, ControlConfig] | None = None
    """None: as in the first round."""


class LoopConfig(Config):
    """Everything of `s2p loop`."""

    name: str
    seed: int = 0
    rounds: int = Field(default=1, ge=1)
    later: tuple[LaterRound, ...] = ()
    """The second round, the third …; a round beyond the last one is as the last."""
    model: str
    """Folder or hub id of the base model."""
    benchmark: PluginChoice
    plan: PlanOptions
    generate: Recipe
    train: TrainSettings
    evaluate: EvaluateOptions = EvaluateOptions()
    sensitivity: SensitivityOptions | None = None
    """Whether the model looks at the marked places, before and after; the plan reads it. None: not measured."""
    controls: dict[str, ControlConfig] = Field(default_factory=dict)
    """Must not improve: shown beside the real training and gated."""
    arms: dict[str, ArmConfig] = Field(default_factory=dict)
    """Further trainings on the real rows, shown beside the first and not gated."""
    gate: GateOptions = GateOptions()
    workers: int = Field(default=1, ge=1)
    """Arms trained at the same time, each in its own process."""
    examples: int = Field(default=12, ge=0)
    """Items shown in the report with what the model said before and after."""
    notes: tuple[str, ...] = ()
    """Sentences for the report, such as what is special about the model."""


@dataclass(frozen=True)
class _Run:
    config: LoopConfig
    out: Path
    benchmark: Benchmark
    data: BenchmarkData
    reporter: Reporter


def loop(config: LoopConfig, out: Path, reporter: Reporter | None = None) -> list[Comparison]:
    """Run the rounds and write one report. A round whose gate says no is the last one.

    Returns the comparison of every round; none where nothing is weak enough to plan for.
    """
    reporter = reporter or Silent()
    out.mkdir(parents=True, exist_ok=True)
    _claim(config, out)
    record, options = resolve(config.benchmark, BENCHMARKS, "benchmark")
    data = record.load(options, lambda done, total: reporter.stage("benchmark", done, total))
    run = _Run(config, out, record, data, reporter)
    comparisons: list[Comparison] = []
    model = config.model
    for number in range(config.rounds):
        folder = out / f"round-{number:02d}"
        comparison = _round(run, folder, model)
        write_run_report(out, out / "report.html")
        if comparison is None:
            break
        comparisons.append(comparison)
        if not comparison.gate_passed:
            break
        if number + 1 < config.rounds:
            model = str(merge_adapter(model, folder / "train", folder / "merged"))
    return comparisons


def _claim(config: LoopConfig, out: Path) -> None:
    settings = dump(config)
    for name in ("rounds", "workers"):  # a finished loop can be given a further round
        settings.pop(name)
    identity = digest(settings)
    path = out / "loop.json"
    if path.exists() and json.loads(path.read_text(encoding="utf-8"))["identity"] != identity:
        raise RunError("this folder belongs to a loop of other settings", where=str(out), fix="use a new --out folder")
    if not path.exists():
        write_json(path, {"identity": identity, "config": dump(config)})


def change_of(config: LoopConfig, number: int) -> LaterRound:
    """What differs in round `number` (0, 1, …); nothing does in the first."""
    return config.later[min(number, len(config.later)) - 1] if number and config.later else LaterRound()


def _round(run: _Run, folder: Path, model: str) -> Comparison | None:
    """One round. None: nothing weak enough to work on."""
    config, number = run.config, _number(folder)
    change = change_of(config, number)
    arms = config.arms if change.arms is None else change.arms
    controls = config.controls if change.controls is None else change.controls
    before = _before(run, folder, model)
    _look(run, folder, model)
    plan = _plan(run, folder, before, change.plan or config.plan)
    targets = [quota.skill for quota in plan.quotas if quota.role == "target"]
    if not targets:
        run.reporter.stage("nothing weak enough to plan for", 1, 1)
        return None
    if not (folder / "power.json").exists():  # stated before anything is trained
        write_json(folder / "power.json", power_json(before, targets, config.gate.alpha))
    check_shortcuts(generate(_recipe(run, folder), folder / "dataset", run.reporter, run.data), folder / "dataset")
    trainings = Trainings(
        folder=folder,
        model=model,
        benchmark=run.data.name,
        seed=config.seed,
        train=config.train,
        changes=change.train,
        arms=arms,
        controls=controls,
        measures=Measures(benchmark=config.benchmark, evaluate=config.evaluate, sensitivity=config.sensitivity),
    )
    run_arms(trainings.all(), config.workers, lambda done, total: run.reporter.stage("training", done, total))
    after = _after(folder)
    comparison = compare(
        before,
        after,
        controls={name: _after(folder / "controls" / name) for name in controls},
        arms={
            name: Rerun(outcomes=_after(folder / "arms" / name), by_seed=not arm.continues and not arm.train)
            for name, arm in arms.items()
        },
        targets=tuple(targets),
        gate=config.gate,
        seed=config.seed,
    )
    unseen, _ = paired(held_out(before, number), held_out(after, number), "after")
    cells = cells_of(by_skill_of(unseen), config.gate.alpha, config.seed, "held out")
    write_json(folder / "comparison.json", {**comparison_to_json(comparison), "held_out": cells_json(cells)})
    if config.sensitivity is not None:
        _compare_looks(folder, config.sensitivity)
    examples = _examples(run.data.items, before, after, set(targets), config.examples)
    write_json(folder / "examples.json", examples)
    write_json(folder / "notes.json", list(config.notes))
    return comparison


def _look(run: _Run, folder: Path, model: str) -> None:
    """Measure the sensitivity before the round, where it is asked for."""
    asked, where = run.config.sensitivity, folder / "before" / "sensitivity"
    if asked is not None and not (where / "sensitivity.json").exists():
        respondent = LocalModel(model, None, run.config.evaluate)
        sensitivity(respondent, run.data, where, asked, run.config.evaluate, run.reporter)


def _plan(run: _Run, folder: Path, before: Sequence[Outcome], options: PlanOptions) -> Plan:
    """The fifth that this round holds out has no say in what is planned."""
    path = folder / "plan.json"
    if not path.exists():
        profile = make_profile(before, run.benchmark, round_number=_number(folder))
        errors = _errors(run, folder, before)
        save_plan(path, make_plan(profile, options, load_all(TASKS), sensitivity=errors))
    return load_plan(path)


def _errors(run: _Run, folder: Path, before: Sequence[Outcome]) -> SensitivityFile | None:
    """Whether the model's errors are blind, by the items that the plan may use; None where it was not measured."""
    asked, number = run.config.sensitivity, _number(folder)
    if asked is None:
        return None
    planned = {outcome.item_id for outcome in planning(before, number)}
    seen = [it for it in load_seen(folder / "before" / "sensitivity") if it.outcome.item_id in planned]
    return errors_of(seen, asked, run.data.name, fold_for_round(number))


def _compare_looks(folder: Path, options: SensitivityOptions) -> None:
    before, after = (load_seen(folder / when / "sensitivity") for when in ("before", "after"))
    skills = looking_json(looking_of(before, after, options.alpha, options.seed))
    write_json(folder / "sensitivity.json", {"options": dump(options), "skills": skills})


def _recipe(run: _Run, folder: Path) -> Recipe:
    config = run.config
    asked = config.generate.guard
    guard = GuardConfig(
        benchmark=config.benchmark,
        expect_items=asked.expect_items,
        expect_images=asked.expect_images,
        options=asked.options,
    )
    return config.generate.model_copy(
        update={
            "name": f"{config.name}-{folder.name}",
            "seed": config.seed + _number(folder),
            "plan": str(folder / "plan.json"),
            "guard": guard,
        }
    )


def _number(folder: Path) -> int:
    return int(folder.name[-2:])


def _before(run: _Run, folder: Path, model: str) -> list[Outcome]:
    path = folder / "before" / "outcomes.jsonl"
    if path.exists():
        outcomes = load_outcomes(path)
    else:
        outcomes = evaluate(
            model,
            None,
            run.data,
            path,
            run.config.evaluate,
            lambda done, total: run.reporter.stage("evaluating the model", done, total),
        )
    write_json(path.with_name("profile.json"), profile_to_json(make_profile(outcomes, run.benchmark)))
    return outcomes


def _after(folder: Path) -> list[Outcome]:
    return load_outcomes(folder / "after" / "outcomes.jsonl")


def _examples(
    items: Sequence[Item], before: Sequence[Outcome], after: Sequence[Outcome], targets: set[Skill], n: int
) -> list[JsonValue]:
    """Items of the taught skills: half gained, a quarter lost, a quarter still wrong, first come of each kind."""
    old = {outcome.item_id: outcome for outcome in before}
    new = {outcome.item_id: outcome for outcome in after}
    shares: Mapping[tuple[bool, bool], int] = {(False, True): n // 2, (True, False): n // 4, (False, False): n // 4}
    taken = dict.fromkeys(shares, 0)
    shown: list[JsonValue] = []
    for item in items:
        if item.skill not in targets or item.item_id not in new:
            continue
        kind = (bool(old[item.item_id].correct), bool(new[item.item_id].correct))
        if taken.get(kind, n) < shares.get(kind, 0):
            taken[kind] += 1
            shown.append(_example(item, old[item.item_id], new[item.item_id]))
    return shown


def _example(item: Item, before: Outcome, after: Outcome) -> dict[str, JsonValue]:
    return {
        "images_b64": [base64.b64encode(data).decode() for data in item.images],
        "question": item.question,
        "choices": list(item.choices),
        "answer": item.answer,
        "before": before.letter,
        "after": after.letter,
        "skill": str(item.skill),
        "tags": dict(item.tags),
    }
