"""The command `s2p`: the verbs of `synth`, and train, evaluate, compare, loop."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from synth import __version__
from synth import cli as synth_cli
from synth.errors import ConfigError


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit codes: 0 done, 1 a gate failed, 2 the user can mend it."""
    parser = argparse.ArgumentParser(
        prog="s2p", description="Benchmark failures in, training data that mends them out, and the proof that it did."
    )
    parser.add_argument("--version", action="version", version=f"see2perceive {__version__}")
    verbs = parser.add_subparsers(metavar="VERB")
    synth_cli.register(verbs)
    verb = synth_cli.add_verb(verbs, "train", _train, "LoRA fine-tuning on a dataset")
    synth_cli.config_arguments(verb)
    verb = synth_cli.add_verb(verbs, "evaluate", _evaluate, "a model on a benchmark")
    verb.add_argument("--model", required=True, help="folder or hub id")
    verb.add_argument("--adapter", type=Path, help="LoRA adapter folder")
    verb.add_argument("--benchmark", required=True, help="benchmark plug-in")
    verb.add_argument("--set", action="append", default=[], metavar="key=value", help="option of the benchmark plug-in")
    verb.add_argument("--out", type=Path, required=True)
    verb = synth_cli.add_verb(verbs, "compare", _compare, "before and after, paired")
    verb.add_argument("before", type=Path, help="outcomes.jsonl, or the folder that holds it")
    verb.add_argument("after", type=Path)
    verb.add_argument("--target", action="append", default=[], help="skill that was taught (repeatable)")
    verb.add_argument(
        "--control", action="append", default=[], metavar="NAME=OUTCOMES", help="control arm (repeatable)"
    )
    verb.add_argument("--gate", action="store_true", help="exit 1 when the gate says no")
    verb.add_argument("--out", type=Path, required=True)
    verb = synth_cli.add_verb(verbs, "loop", _loop, "the whole loop, round by round")
    synth_cli.config_arguments(verb)
    verb.add_argument("--out", type=Path, help="run folder (default: outputs/<name>)")
    return synth_cli.run(parser, argv)


def _train(args: argparse.Namespace) -> int:
    from finetune.train import TrainConfig, train
    from synth.config import load_config
    from synth.progress import Bars

    config = load_config(args.config, TrainConfig, args.set)
    with Bars() as bars:
        record = train(config, lambda done, total: bars.stage("training", done, total))
    print(f"{record.steps} steps in {record.seconds:.0f} s, last loss {record.losses[-1][1]:.3f}: {config.out}")
    return 0


def _evaluate(args: argparse.Namespace) -> int:
    from finetune.evaluate import EvaluateOptions, evaluate
    from synth.config import resolve_named
    from synth.diagnosis.profile import format_table, make_profile, profile_to_json
    from synth.files import write_json
    from synth.plugins import BENCHMARKS
    from synth.progress import Bars

    record, options = resolve_named(args.benchmark, args.set, BENCHMARKS, "benchmark")
    with Bars() as bars:
        data = record.load(options, lambda done, total: bars.stage("benchmark", done, total))
        outcomes = evaluate(
            args.model,
            args.adapter,
            data,
            args.out / "outcomes.jsonl",
            EvaluateOptions(),
            lambda done, total: bars.stage("evaluating", done, total),
        )
    profile = make_profile(outcomes, record)
    write_json(args.out / "profile.json", profile_to_json(profile))
    print(format_table(profile))
    return 0


def _compare(args: argparse.Namespace) -> int:
    from finetune.compare import GateOptions, compare, comparison_to_json, format_comparison
    from synth.diagnosis.profile import make_profile, profile_to_json
    from synth.diagnosis.reading import load_outcomes, write_outcomes
    from synth.files import write_json
    from synth.report.run import write_run_report
    from synth.types import Skill

    unknown = [name for name in args.target if name not in set(Skill)]
    if unknown:
        raise ConfigError(f"no such skill: {', '.join(unknown)}", where="--target", fix=f"known: {', '.join(Skill)}")
    controls = {}
    for text in args.control:
        name, _, path = text.partition("=")
        controls[name] = load_outcomes(_outcomes(Path(path)))
    before, after = load_outcomes(_outcomes(args.before)), load_outcomes(_outcomes(args.after))
    comparison = compare(
        before,
        after,
        controls=controls,
        targets=tuple(Skill(name) for name in args.target),
        gate=GateOptions(),
        seed=0,
    )
    write_json(args.out / "comparison.json", comparison_to_json(comparison))
    write_json(args.out / "before" / "profile.json", profile_to_json(make_profile(before)))
    write_outcomes(args.out / "before" / "outcomes.jsonl", before)
    write_outcomes(args.out / "after" / "outcomes.jsonl", after)
    write_run_report(args.out, args.out / "report.html")
    print(format_comparison(comparison))
    print(f"written: {args.out}/comparison.json report.html")
    return 1 if args.gate and not comparison.gate_passed else 0


def _outcomes(path: Path) -> Path:
    return path / "outcomes.jsonl" if path.is_dir() else path


def _loop(args: argparse.Namespace) -> int:
    from finetune.compare import format_comparison
    from finetune.rounds import LoopConfig, loop
    from synth.config import load_config
    from synth.progress import Bars

    config = load_config(args.config, LoopConfig, args.set)
    out = args.out or Path("outputs") / config.name
    with Bars() as bars:
        comparisons = loop(config, out, bars)
    for comparison in comparisons:
        print(format_comparison(comparison))
    if not comparisons:
        print("nothing is weak enough to plan for")
    print(f"report: {out}/report.html")
    return 0 if all(comparison.gate_passed for comparison in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
