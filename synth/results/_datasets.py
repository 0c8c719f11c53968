"""What a harness calls a set of questions → the name of our benchmark plug-in, and what BLINK's categories show.

A set that is not known is read all the same; its categories are then those of the file.
"""

from __future__ import annotations

import re

_SETS = {
    "blink": "blink",
    "cv_bench": "cv_bench",
    "cvbench": "cv_bench",
    "mmvp": "mmvp",
    "pope": "pope",
    "hallusion_bench": "hallusion_bench",
    "hallusionbench": "hallusion_bench",
    "mmstar": "mmstar",
    "realworldqa": "realworldqa",
    "vsi_bench": "vsi_bench",
    "vsibench": "vsi_bench",
    "medblink": "medblink",
    "med_blink": "medblink",
    "blind_spots": "blind_spots",
    "blindspots": "blind_spots",
}
BLINK_IMAGES = {
    "Art_Style": 3,
    "Forensic_Detection": 4,
    "Functional_Correspondence": 2,
    "Jigsaw": 3,
    "Multi-view_Reasoning": 2,
    "Semantic_Correspondence": 2,
    "Visual_Correspondence": 2,
    "Visual_Similarity": 3,
}
"""Images an item of BLINK, where it is not one."""


def benchmark_named(dataset: str) -> tuple[str, str]:
    """(plug-in, rest): "blink_relative_depth" → ("blink", "relative_depth"); an unknown set → ("", all of it)."""
    name = re.sub(r"[^a-z0-9]+", "_", dataset.lower()).strip("_")
    for known in sorted(_SETS, key=len, reverse=True):
        if name == known or name.startswith(known + "_"):
            return _SETS[known], name[len(known) + 1 :]
    return "", dataset


def images_of(benchmark: str, category: str) -> int:
    """Images an item of this category has, as far as it is known without the benchmark; else 1."""
    return BLINK_IMAGES.get(category.replace(" ", "_"), 1) if benchmark == "blink" else 1
