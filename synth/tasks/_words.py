"""English for labels: plurals, articles, and names without the suffixes of label sets."""

from __future__ import annotations

IRREGULAR = {
    "person": "people",
    "man": "men",
    "woman": "women",
    "child": "children",
    "mouse": "mice",
    "goose": "geese",
    "tooth": "teeth",
    "foot": "feet",
    "ox": "oxen",
    "knife": "knives",
    "wife": "wives",
    "life": "lives",
    "leaf": "leaves",
    "loaf": "loaves",
    "shelf": "shelves",
    "bookshelf": "bookshelves",
    "scarf": "scarves",
    "wolf": "wolves",
    "calf": "calves",
    "half": "halves",
    "bus": "buses",
    "gas": "gases",
    "lens": "lenses",
    "die": "dice",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "mango": "mangoes",
    "buffalo": "buffaloes",
    "cactus": "cacti",
    "quiz": "quizzes",
}
"""Last word -> its plural, where no rule gives it."""

SAME = {"sheep", "fish", "deer", "aircraft", "spacecraft", "broccoli", "series", "species", "people", "skis"}
"""Words that are their own plural and would get an ending by the rules."""

ALIKE = (
    frozenset({"person", "man", "woman", "child", "boy", "girl", "pedestrian", "rider", "human"}),
    frozenset({"sofa", "couch", "settee"}),
    frozenset({"tv", "television", "monitor", "screen", "tvmonitor", "tv monitor"}),
    frozenset({"cell phone", "mobile phone", "phone", "smartphone", "telephone"}),
    frozenset({"airplane", "aeroplane", "plane", "aircraft"}),
    frozenset({"motorcycle", "motorbike"}),
    frozenset({"bicycle", "bike"}),
    frozenset({"potted plant", "plant", "houseplant"}),
    frozenset({"table", "dining table", "desk", "coffee table"}),
    frozenset({"bin", "trash can", "dustbin", "waste bin"}),
    frozenset({"donut", "doughnut"}),
    frozenset({"cup", "mug"}),
    frozenset({"bag", "handbag", "purse"}),
    frozenset({"chair", "armchair", "office chair"}),
)
"""Names that people use for one another: to count one of them beside the other would be a guess."""

STUFF = {
    *("wall", "floor", "ceiling", "sky", "ground", "road", "street", "pavement", "sidewalk", "grass", "field", "sand"),
    *("snow", "water", "sea", "river", "mountain", "hill", "rock", "gravel", "dirt", "platform", "railroad"),
    *("background", "foliage", "vegetation", "terrain", "playingfield"),
}
"""Names of what fills space and has no instances."""

_SUFFIXES = ("-merged", "-other", "-stuff")


def spoken(label: str) -> str:
    """The label as people say it: "sky-other-merged" -> "sky", "traffic_light" -> "traffic light"."""
    name = label.strip().lower()
    while True:
        short = next((name[: -len(s)] for s in _SUFFIXES if name.endswith(s) and len(name) > len(s)), name)
        if short == name:
            return " ".join(name.replace("_", " ").replace("-", " ").split())
        name = short


def names_stuff(label: str) -> bool:
    """True where the label alone says that it has no instances: "wall-brick", "tree-merged"."""
    return label.endswith(_SUFFIXES) or bool(STUFF & set(spoken(label).split()))


def plural(name: str) -> str:
    """Plural of a spoken name: its last word is put in the plural ("traffic light" -> "traffic lights")."""
    head, space, last = name.rpartition(" ")
    return f"{head}{space}{_plural_word(last)}"


def is_plural(name: str) -> bool:
    """True for a name that has no singular form in view ("scissors", "people"): "a" and "how many" do not fit it."""
    last = name.rsplit(" ", 1)[-1]
    return last == _plural_word(last) and last not in ("sheep", "fish", "deer", "aircraft", "spacecraft")


def with_article(name: str) -> str:
    """The name with "a" or "an"."""
    silent = name.startswith(("hour", "honest", "heir"))
    consonant = name.startswith(("uni", "use", "eu", "one", "ufo", "ukulele", "utensil"))
    return f"{'an' if silent or (name[:1] in 'aeiou' and not consonant) else 'a'} {name}"


def same_kind(first: str, second: str) -> bool:
    """True where two labels may name the same thing: equal, singular and plural, or used for one another."""
    a, b = spoken(first), spoken(second)
    if a == b or plural(a) == b or plural(b) == a:
        return True
    singular = {IRREGULAR[word]: word for word in IRREGULAR}
    a, b = singular.get(a, a), singular.get(b, b)
    return a == b or any(a in group and b in group for group in ALIKE)


def share_a_word(first: str, second: str) -> bool:
    """True where two spoken names have a word in common ("brick wall", "wall"): too close for one set of options."""
    return bool(set(first.split()) & set(second.split())) or same_kind(first, second)


def _plural_word(word: str) -> str:
    if word in SAME:
        return word
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word  # a label that is in the plural already
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        return f"{word[:-1]}ies"
    if word.endswith("man") and word not in ("human", "german", "talisman"):
        return f"{word[:-3]}men"
    return f"{word}s"
