"""Any table of replies: JSON lines, a JSON list, CSV, TSV or .xlsx, with the columns named as its writer liked.

Our fields are `item_id` and `text` (the reply), and where known `gold`, `category`, `model`, `choices` (a list, a text
such as "(A) …", or columns A, B, …), `n_options`, `question`, `prompt`, `group`, `released` (the letter that another
tool read), `harness_correct` and `n_images` (images that the model was sent). A column of a field's own name is that
field; common synonyms are recognised, and where two columns could be one field nothing is guessed: a mapping says
which. Default category and model: the file's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from synth.contracts import ResultsFormat
from synth.errors import ResultsError
from synth.results import _values as values
from synth.results._tables import CELL_LIMIT, Row, columns, rows
from synth.types import LETTERS, Reply

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "item_id": ("id", "index", "idx", "question_id", "sample_id", "qid", "doc_id", "uid"),
    "text": (
        "prediction", "response", "output", "reply", "pred", "completion", "model_output", "generated_text",
        "model_answer", "model_response", "raw_output", "full_prediction",
    ),
    "gold": (
        "answer", "target", "ground_truth", "groundtruth", "gt", "gt_answer", "label", "correct_answer", "reference",
        "correct_option",
    ),
    "category": ("sub_task", "subtask", "task", "task_type", "question_type", "type"),
    "model": ("model_id", "model_name"),
    "choices": ("options", "answer_choices", "candidates"),
    "n_options": ("num_options", "n_choices", "num_choices"),
    "question": ("query",),
    "prompt": ("full_prompt", "input"),
    "group": ("image_id", "pair_id", "set_id"),
    "released": ("extracted", "parsed", "pred_parsed", "parsed_answer", "extracted_answer"),
    "harness_correct": ("correct", "is_correct", "hit", "score"),
    "n_images": ("num_images", "images_sent"),
}  # fmt: skip
_FIX = "say which column is which with --map {field}=COLUMN (repeatable); fields: " + ", ".join(SYNONYMS)


def _named(names: tuple[str, ...], field: str) -> list[str]:
    """The columns that could be a field; one of the field's own name leaves no doubt."""
    folded = {name: name.strip().lower().replace(" ", "_").replace("-", "_") for name in names}
    own = [name for name, key in folded.items() if key == field]
    others = [name for name, key in folded.items() if key in SYNONYMS[field]]
    # But a column "text" beside a column "prediction" may well be the question's.
    return own + others if field == "text" else own or others


def sniff(path: Path) -> bool:
    """True for a table with columns that could be an item's id and a reply."""
    names = columns(path)
    return all(_named(names, field) for field in ("item_id", "text"))


def read(path: Path) -> Iterator[Reply]:
    """One reply a row. Raises ResultsError that lists the columns where a field has none or several."""
    return read_mapped(path, {})


def read_mapped(path: Path, mapping: Mapping[str, str]) -> Iterator[Reply]:
    """One reply a row, the fields in `mapping` taken from its columns. Raises ResultsError as `read` does."""
    places: dict[str, str] = {}
    for number, (where, row) in enumerate(rows(path)):
        if not number:
            places = _places(tuple(row), mapping, str(path))
        yield _reply(row, places, path, where)


def _places(names: tuple[str, ...], mapping: Mapping[str, str], where: str) -> dict[str, str]:
    told = f"the columns are {', '.join(names)}"
    for field, column in mapping.items():
        if field not in SYNONYMS:
            raise ResultsError(f"no such field: {field!r}", where=where, fix=f"fields: {', '.join(SYNONYMS)}")
        if column not in names:
            raise ResultsError(f"no column {column!r} for {field}; {told}", where=where, fix=_FIX.format(field=field))
    places = dict(mapping)
    for field in SYNONYMS.keys() - mapping.keys():
        found = [name for name in _named(names, field) if name not in mapping.values()]
        if len(found) > 1:
            either = " or ".join(found)
            raise ResultsError(f"{field} could be {either}; {told}", where=where, fix=_FIX.format(field=field))
        if found:
            places[field] = found[0]
    for field in ("item_id", "text"):
        if field not in places:
            raise ResultsError(f"no column for {field}; {told}", where=where, fix=_FIX.format(field=field))
    return places


def _reply(row: Row, places: Mapping[str, str], path: Path, where: str) -> Reply:
    cells = {field: row.get(column) for field, column in places.items()}
    told = {field: values.plain(cell) for field, cell in cells.items() if field != "choices"}
    item_id = told.get("item_id")
    if item_id is None:
        raise ResultsError(f"no {places['item_id']}", where=where, fix=_FIX.format(field="item_id"))
    choices = values.options(cells.get("choices"), where) or _lettered(row)
    prompt = told.get("prompt") or ""
    if not choices:
        gold = told.get("gold")
        choices = values.listed(prompt, gold) or values.listed(told.get("question") or "", gold)
    if not choices and values.is_yes_no(told.get("gold")):
        choices = values.YES_NO
    n_images = _count(told.get("n_images"), "n_images", where)
    released = told.get("released")
    return Reply(
        item_id=item_id,
        category=told.get("category") or path.stem,
        model=told.get("model") or path.stem,
        text=told.get("text") or "",
        gold=values.gold_letter(told.get("gold"), choices, where),
        released=None if released is None else values.letter(released) or "Z",
        choices=choices,
        n_options=_count(told.get("n_options"), "n_options", where) or 0,
        n_images=1 if n_images is None else n_images,
        prompt=prompt,
        question=told.get("question") or "",
        truncated=path.suffix.lower() == ".xlsx" and len(told.get("text") or "") >= CELL_LIMIT,
        harness_correct=values.verdict(told.get("harness_correct")),
        group=told.get("group") or "",
        tags={} if n_images is None else {"images_sent": str(n_images)},
    )


def _lettered(row: Row) -> tuple[str, ...]:
    """Option texts in columns A, B, … or option_a, option_b, …"""
    lowered = {key.lower(): cell for key, cell in row.items()}
    texts = [values.plain(row.get(key)) or values.plain(lowered.get(f"option_{key.lower()}")) for key in LETTERS]
    while texts and texts[-1] is None:
        texts.pop()
    return tuple(text or "" for text in texts)


def _count(text: str | None, field: str, where: str) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or int(text) > 1000:
        raise ResultsError(f"expected a count under {field}, found {text!r}", where=where)
    return int(text)


RESULTS = ResultsFormat(
    name="table",
    version=1,
    benchmark="",
    sniff=sniff,
    read=read,
    read_mapped=read_mapped,
    looks_for="a .jsonl, .json list, .csv, .tsv or .xlsx with columns for item_id and text, or a column mapping",
)
