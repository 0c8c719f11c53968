"""Marks that benchmarks carry so that they can be told in training data: canary texts, and the ids of their items."""

from __future__ import annotations

import binascii
import io
import re
from collections.abc import Iterator

from PIL import Image

from synth import images

BLINK_SUBTASKS = (
    "Art_Style",
    "Counting",
    "Forensic_Detection",
    "Functional_Correspondence",
    "IQ_Test",
    "Jigsaw",
    "Multi-view_Reasoning",
    "Object_Localization",
    "Relative_Depth",
    "Relative_Reflectance",
    "Semantic_Correspondence",
    "Spatial_Relation",
    "Visual_Correspondence",
    "Visual_Similarity",
)
CANARIES = ("canary GUID", "(val|test)_<subtask>_N")
"""What is searched for, as the certificate names it."""

_PATTERN = re.compile(rf"canary guid|(?<![a-z])(?:val|test)_(?:{'|'.join(BLINK_SUBTASKS)})_\d+", re.IGNORECASE)
_BYTES_PATTERN = re.compile(_PATTERN.pattern.encode(), re.IGNORECASE)
_BEGINNINGS = (b"canary guid", b"val_", b"test_")
"""One of these stands in every match. A search for fixed bytes costs a fiftieth of the pattern's."""
_WIDE_BEGINNINGS = tuple(b"\x00".join(text[i : i + 1] for i in range(len(text))) for text in _BEGINNINGS)
"""The same in UTF-16, as cameras and Windows write comments; with the high bytes between, either byte order fits."""
_RAW_PROFILE = re.compile(r"\s*\w+\s+\d+\s+([0-9a-fA-F\s]+)")
"""EXIF or XMP as hexadecimal text, which some programs put into PNG files."""


def canaries_in_text(text: str) -> Iterator[str]:
    """Every canary in a text."""
    return (match.group() for match in _PATTERN.finditer(text))


def canaries_in_image(data: bytes) -> Iterator[str]:
    """Every canary in the metadata of an image file: EXIF, XMP, comments and PNG text, compressed or not."""
    yield from _in_bytes(data)
    if data.startswith(b"\x89PNG") and (b"zTXt" in data or b"iTXt" in data or b"Raw profile" in data):
        for text in _png_texts(data):
            yield from canaries_in_text(text)
            if profile := _RAW_PROFILE.fullmatch(text):
                yield from _in_bytes(_from_hex(profile[1]))


def _in_bytes(data: bytes) -> Iterator[str]:
    lowered = data.lower()
    if any(beginning in lowered for beginning in _BEGINNINGS):
        yield from (match.group().decode() for match in _BYTES_PATTERN.finditer(data))
    if any(beginning in lowered for beginning in _WIDE_BEGINNINGS):
        yield from (match.group().decode() for match in _BYTES_PATTERN.finditer(data.replace(b"\x00", b"")))


def _png_texts(data: bytes) -> list[str]:
    with Image.open(io.BytesIO(data), formats=images.FORMATS) as image:
        # Text may follow the pixels, so it is known only once they are read.
        image.load()
        return [str(text) for text in getattr(image, "text", {}).values()]


def _from_hex(text: str) -> bytes:
    try:
        return binascii.unhexlify("".join(text.split()))
    except binascii.Error:
        return b""
