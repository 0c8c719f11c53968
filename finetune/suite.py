"""One model on one benchmark under several conditions: two ways of asking, rotated options, other instructions, and
baselines that see nothing or the wrong thing. What each accuracy is worth is only seen beside the others.

`outcomes.jsonl` is the plain evaluation; every other condition has a folder of its own, and `evaluation.json` the
tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from finetune import conditions
from finetune.conditions import Condition
from finetune.evaluate import evaluate_with, journal_of
from finetune.respondents import EvaluateOptions, Respondent, Template
from finetune.score import NoPicture
from finetune.selective import Selective, selective
from synth.config import Config
from synth.contracts import BenchmarkData
from synth.diagnosis.alarms import rotations_of, split_by
from synth.diagnosis.paired import Pair, by_skill_of, cell_of, cells_of, paired, points_between
from synth.diagnosis.reading import write_outcomes
from synth.diagnosis.statistics import wilson
from synth.errors import ConfigError
from synth.files import write_json
from synth.findings import Cell
from synth.progress import Silent
from synth.types import Outcome, Reporter

ALPHA = 0.05
_SHOWN = 5
"""Contradictions that are printed; the file has all."""


class SuiteOptions(Config):
    """What is asked beside the plain evaluation."""

    evaluate: EvaluateOptions = EvaluateOptions()
    both: bool = False
    """Ask for a letter and for a reply, and compare."""
    circular: bool = False
    """Every rotation of the options; an item counts only where all are right."""
    variants: tuple[Template, ...] = ()
    """Instructions beside the plain one."""
    baselines: bool = False
    """Text only, a grey picture, the wrong picture, the most frequent letter."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Right items of some outcomes, with Wilson's 95 % interval."""

    n: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One forward pass against a written reply, on the same items."""

    n: int
    agree: float
    """Share of all items with the same letter."""
    unread: int
    """Replies without a letter."""
    choice: Accuracy
    generate: Accuracy
    contradictions: tuple[Mapping[str, str | None], ...]
    """Items where both have a letter and the letters differ."""


@dataclass(frozen=True, kw_only=True)
class Circular:
    """Questions in all rotations of their options."""

    n: int
    plain: Accuracy
    """The order of the benchmark alone."""
    all_right: Accuracy
    """Right in every order."""
    chance: float
    """Of being right in every order by guessing."""
    left_out: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The same questions under several instructions."""

    accuracy: Mapping[str, Accuracy]
    spread: float
    """Largest accuracy minus smallest."""
    unstable: float
    """Share of items whose letter is not the same under all."""


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """What is right without looking."""

    rows: Mapping[str, Accuracy]
    chance: float
    needs_picture: Mapping[str, Cell]
    """Skill -> wrong picture (before) against the right one (after): `delta` is the accuracy that needs the picture."""
    overall: Cell | None
    left_out: Mapping[str, Mapping[str, int]]
    impossible: Mapping[str, str]
    """Baselines that this model cannot be asked for, with the reason."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """evaluation.json"""

    model: str
    benchmark: str
    outcomes: Sequence[Outcome] = field(repr=False)
    plain: Accuracy
    option_mass: float | None
    margin: float | None
    """Means over the items; None for written replies."""
    agreement: Agreement | None = None
    circular: Mapping[str, Circular] = field(default_factory=dict)
    """By category."""
    variants: Spread | None = None
    baselines: Baselines | None = None
    confidence: Selective | None = None


@dataclass(frozen=True)
class _Run:
    respondent: Respondent
    data: BenchmarkData
    out: Path
    options: SuiteOptions
    reporter: Reporter
    files: list[Path] = field(default_factory=list)

    def ask(self, folder: str, data: BenchmarkData, options: EvaluateOptions) -> list[Outcome]:
        """Outcomes of one condition, in a folder of their own ("" for the plain one)."""
        path = self.out / folder / "outcomes.jsonl"
        name = f"evaluating: {folder}" if folder else "evaluating"
        self.files.append(path)
        return evaluate_with(
            self.respondent, data, path, options, lambda done, total: self.reporter.stage(name, done, total)
        )


def run_suite(
    respondent: Respondent,
    data: BenchmarkData,
    out: Path,
    options: SuiteOptions | None = None,
    reporter: Reporter | None = None,
) -> Suite:
    """Evaluate under every condition asked for and write `out`; a killed run goes on where it stopped.

    Raises ConfigError for conditions that do not fit together, and as `evaluate_with` does.
    """
    options = options or SuiteOptions()
    if options.circular and options.evaluate.wording != "rows":
        raise ConfigError("the benchmark's own prompt has one order only", where="circular", fix="use wording: rows")
    run = _Run(respondent, data, out, options, reporter or Silent())
    asked = options.evaluate.model_copy(update={"mode": "choice"}) if options.both else options.evaluate
    plain = run.ask("", data, asked)
    measured = [(outcome.option_mass, outcome.margin) for outcome in plain if outcome.probabilities]
    suite = Suite(
        model=respondent.name,
        benchmark=data.name,
        outcomes=plain,
        plain=accuracy_of(plain),
        option_mass=_mean([mass for mass, _ in measured if mass is not None]),
        margin=_mean([margin for _, margin in measured if margin is not None]),
        agreement=_agreement(run, plain, asked) if options.both else None,
        circular=_circular(run, plain, asked) if options.circular else {},
        variants=_variants(run, plain, asked) if options.variants else None,
        baselines=_baselines(run, plain, asked) if options.baselines else None,
        confidence=selective(plain, {}, options.seed) if measured else None,
    )
    told = asdict(replace(suite, outcomes=()))
    del told["outcomes"]
    write_json(out / "evaluation.json", told)
    for path in run.files:
        journal_of(path).unlink()
    return suite


def accuracy_of(outcomes: Sequence[Outcome]) -> Accuracy:
    """Over the scored items; an item without a letter counts as wrong."""
    return _accuracy([bool(outcome.correct) for outcome in outcomes if outcome.correct is not None])


def _accuracy(right: Sequence[bool]) -> Accuracy:
    low, high = wilson(sum(right), len(right))
    return Accuracy(n=len(right), accuracy=sum(right) / len(right) if right else 0.0, low=low, high=high)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# ---------------------------------------------------------------------------------------------------------- conditions


def _agreement(run: _Run, plain: Sequence[Outcome], asked: EvaluateOptions) -> Agreement:
    written = run.ask("generated", run.data, asked.model_copy(update={"mode": "generate"}))
    differing = [(a, b) for a, b in zip(plain, written, strict=True) if b.letter is not None and a.letter != b.letter]
    return Agreement(
        n=len(plain),
        agree=sum(a.letter == b.letter for a, b in zip(plain, written, strict=True)) / len(plain),
        unread=sum(b.letter is None for b in written),
        choice=accuracy_of(plain),
        generate=accuracy_of(written),
        contradictions=tuple(
            {"item_id": a.item_id, "choice": a.letter, "generate": b.letter, "text": b.text, "gold": a.gold}
            for a, b in differing
        ),
    )


def _circular(run: _Run, plain: Sequence[Outcome], asked: EvaluateOptions) -> dict[str, Circular]:
    turned = conditions.rotations(run.data)
    others = run.ask("rotations", turned.data, asked) if turned.data.items else []
    questions = {outcome.tags["question"] for outcome in others}
    first = [
        replace(o, item_id=f"{o.item_id}@0", tags={**o.tags, "rotation": "0", "question": o.item_id})
        for o in plain
        if o.item_id in questions
    ]
    write_outcomes(run.out / "rotations" / "outcomes.jsonl", [*first, *others])
    found = {}
    for category, members_of in split_by(plain, lambda row: row.category):
        rows = [row for row in (*first, *others) if row.category == category]
        sets = [members for _, members in rotations_of(rows) if members[0].correct is not None]
        chances = [float(1 / members[0].n_options) ** len(members) for members in sets]
        missing = sum(o.item_id not in questions for o in members_of)
        found[category] = Circular(
            n=len(sets),
            plain=accuracy_of([row for row in rows if row.tags["rotation"] == "0"]),
            all_right=_accuracy([all(row.correct for row in members) for members in sets]),
            chance=_mean(chances) or 0.0,
            left_out={reason: missing for reason in turned.left_out if missing},
        )
    return found


def _variants(run: _Run, plain: Sequence[Outcome], asked: EvaluateOptions) -> Spread:
    runs = {asked.template: list(plain)}
    for number, template in enumerate(run.options.variants):
        runs[template] = run.ask(f"variants/{number}", run.data, asked.model_copy(update={"template": template}))
    accuracy = {template: accuracy_of(outcomes) for template, outcomes in runs.items()}
    shares = [it.accuracy for it in accuracy.values()]
    letters = [{outcome.letter for outcome in same} for same in zip(*runs.values(), strict=True)]
    return Spread(
        accuracy=accuracy,
        spread=max(shares) - min(shares),
        unstable=sum(len(found) > 1 for found in letters) / len(letters),
    )


def _baselines(run: _Run, plain: Sequence[Outcome], asked: EvaluateOptions) -> Baselines:
    rows = {"right image": accuracy_of(plain)}
    impossible: dict[str, str] = {}
    pairs: list[Pair] = []
    shown = [
        conditions.text_only(run.data),
        conditions.grey(run.data),
        conditions.wrong_image(run.data, run.options.seed),
    ]
    for condition in shown:
        name = condition.name.replace("_", " ")
        if not condition.data.items:
            impossible[name] = next(iter(condition.left_out))
            continue
        try:
            outcomes = run.ask(f"baselines/{condition.name}", condition.data, asked)
        except NoPicture as error:
            impossible[name] = error.message
            continue
        rows[name] = accuracy_of(outcomes)
        if condition.name == "wrong_image":
            pairs = _pairs(outcomes, plain, condition)
    constant = conditions.most_frequent(plain)
    write_outcomes(run.out / "baselines" / "most_frequent" / "outcomes.jsonl", constant)
    rows["most frequent letter"] = accuracy_of(constant)
    return Baselines(
        rows=rows,
        chance=_mean([1 / outcome.n_options for outcome in plain if outcome.correct is not None]) or 0.0,
        needs_picture=cells_of(by_skill_of(pairs), ALPHA, run.options.seed, "picture"),
        overall=cell_of(pairs, run.options.seed, "picture") if pairs else None,
        left_out={condition.name: condition.left_out for condition in shown if condition.left_out},
        impossible=impossible,
    )


def _pairs(wrong: Sequence[Outcome], plain: Sequence[Outcome], condition: Condition) -> list[Pair]:
    shown = {item.item_id for item in condition.data.items}
    right = [outcome for outcome in plain if outcome.item_id in shown]
    return paired(wrong, right, "the right image")[0] if any(o.correct is not None for o in right) else []


# --------------------------------------------------------------------------------------------------------------- table


def format_suite(suite: Suite) -> str:
    """The tables for a terminal; "" where nothing was asked beside the plain evaluation."""
    lines: list[str] = []
    if suite.option_mass is not None and suite.margin is not None:
        lines.append(f"option mass {suite.option_mass:.3f}, margin {suite.margin:.3f} (means over the items)")
    if suite.agreement is not None:
        it = suite.agreement
        lines.append(
            f"letters agree on {100 * it.agree:.1f} % of {it.n} items: by choice {_told(it.choice)}, "
            f"by reply {_told(it.generate)}; {len(it.contradictions)} contradict, {it.unread} replies have no letter"
        )
        lines += [f"  {c['item_id']}: choice {c['choice']}, reply {c['text']!r}" for c in it.contradictions[:_SHOWN]]
    for category, turned in suite.circular.items():
        missing = "".join(f"; {n} left out: {reason}" for reason, n in turned.left_out.items())
        lines.append(
            f"{category}: right in all orders {_told(turned.all_right)} of {turned.n} "
            f"(chance {100 * turned.chance:.1f}), in the benchmark's order {_told(turned.plain)}{missing}"
        )
    if suite.variants is not None:
        lines += [f"{template!r}: {_told(it)}" for template, it in suite.variants.accuracy.items()]
        lines.append(
            f"spread over {len(suite.variants.accuracy)} instructions {100 * suite.variants.spread:.1f} points; "
            f"{100 * suite.variants.unstable:.1f} % of the letters change"
        )
    return "\n".join([*lines, *(_baseline_lines(suite.baselines) if suite.baselines is not None else ())])


def _baseline_lines(it: Baselines) -> list[str]:
    lines = [f"{name:22}{_told(row)} of {row.n}" for name, row in it.rows.items()]
    lines.append(f"{'chance':22}{100 * it.chance:.1f}")
    lines += [f"{name:22}not possible: {reason}" for name, reason in it.impossible.items()]
    cells = {"overall": it.overall, **it.needs_picture} if it.overall is not None else {}
    for name, cell in cells.items():
        corrected = "" if cell.p_holm is None else f" (Holm {cell.p_holm:.2g})"
        between = points_between(cell.low, cell.high)
        lines.append(f"needs the picture, {name}: {100 * cell.delta:+.1f} points {between}, p {cell.p:.2g}{corrected}")
    return lines


def _told(it: Accuracy) -> str:
    return f"{100 * it.accuracy:.1f} [{100 * it.low:.1f}, {100 * it.high:.1f}]"
