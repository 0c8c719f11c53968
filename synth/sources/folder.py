"""Photos in a folder, with the truth that may lie beside them.

JPEG, PNG and WEBP files by suffix, in the order of their paths; hidden files and linked folders are left alone, and a
link that leaves the folder is refused. A folder may hold `truth.jsonl`: UTF-8, one JSON object a photo, names relative
to it, pixels and boxes in the photo as shown (EXIF orientation applied). Only `file` must be there:

    file          the photo
    group         scene, video or sequence: stays in one split, and its photos can be second views of each other.
                  Default: the group of a photo whose line leads to this one (homographies, matches, depth.right); else,
                  with `group: folder`, its folder; else the photo alone
    domain        indoor, street, …
    licence       of the photo (default: the source's `licence`)
    depth         {file, scale, unit, order_only?, right?}: PNG of the photo's size, one channel of 8 or 16 bits, 0 = no
                  value. unit "m": metres = value / scale. "disparity": value / scale, larger is nearer. "relative":
                  depth up to a factor, larger is farther. right: the other photo of a rectified stereo pair, disparity
                  in pixels: (x, y) lies at (x - disparity, y) there. order_only: a note
    boxes         [{label, xyxy}]
    complete      true: every instance of every label in `vocabulary` is listed; false (default): never count
    vocabulary    labels that were looked for; those in use always belong to it
    crowd         [{label, xyxy}], or COCO's bare [x, y, width, height]: stands for several objects
    masks         {file, encoding: "coco_panoptic", segments: [{id, label, thing, crowd}]}: PNG of the photo's size with
                  id = R + 256 G + 65536 B; a thing's mask goes to the box of its label that it fills
    homographies  [{to, matrix}]: 3x3, this photo's pixels to the other's
    camera        {K, R?, t?}: 3x3 intrinsics in pixels; x_camera = R x_world + t, metres (default: the world's frame)
    matches       {to, here, there}: [[x, y], …] each, places marked in both photos
    counts, keypoints   checked for being JSON, and not used yet

Other keys are the writer's notes, unless they look like a misspelt one of these. Depth and mask files are no photos.

Frames of a video: one folder a video, names with leading zeros (their order is the order of the paths), and
`group: folder`.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import Field, field_validator

from synth.contracts import Source
from synth.errors import ImageError, SourceError
from synth.images import MAX_BYTES, SUFFIXES, inspect
from synth.sources import _sidecar
from synth.types import PluginOptions, SourceItem, View, narrow


class Options(PluginOptions):
    """Which photos of which folder."""

    path: Path
    recursive: bool = True
    limit: int | None = Field(default=None, ge=1)
    """Only the first so many, in path order."""
    licence: str = "unknown"
    """Of photos whose line does not say."""
    group: Literal["photo", "folder"] = "photo"
    """folder: the photos of one folder show one scene (a video's frames), where no line says otherwise."""
    domain: str = ""
    """What the photos show (indoor, street …), where no line says so: picks the entry of a calibration."""

    @field_validator("domain")
    @classmethod
    def _of_photographs(cls, value: str) -> str:
        # The guard looks at renders less closely, so that must stay with the pictures it is true of.
        if value in ("rendered", "drawn"):
            raise ValueError("a folder of photos is neither rendered nor drawn; truth.jsonl says so of single pictures")
        return value


def list_items(options: PluginOptions) -> Sequence[SourceItem]:
    """Every photo with the sha256 of its file. Raises SourceError for an empty folder or a broken sidecar."""
    chosen = narrow(options, Options)
    root = _root(chosen)
    files = _files(root, chosen.recursive)
    entries = _entries(root, files)
    companions = {(entry.folder / file).resolve() for entry in entries.values() for file in entry.companions()}
    photos = [name for name in files if _is_photo(name) and (root / name).resolve() not in companions]
    if not photos:
        raise SourceError(_nothing(files, chosen), where=str(root), fix=_advice(root, chosen))
    if entries and not entries.keys() & set(photos):
        where = next(iter(entries.values())).where
        raise SourceError("no line names a photo of this folder", where=where, fix="`file` is relative to the sidecar")
    groups = _groups(root, entries)
    return [_item(root, name, groups, chosen) for name in photos[: chosen.limit]]


def load(item: SourceItem, options: PluginOptions) -> View:
    """The photo with its truth.

    Raises ImageError (reasons of `images`, and outside_root, unreadable, changed), and SourceError where the sidecar is
    wrong about this photo.
    """
    chosen = narrow(options, Options)
    root = _root(chosen)
    data = _read(root, item.key)
    info = inspect(data)
    if info.image_id != item.fingerprint:
        raise ImageError("changed: the file is not the one that was listed", where=item.key)
    entry = _entry(root, item.key)
    return View(
        image_id=info.image_id,
        data=data,
        width=info.width,
        height=info.height,
        name=item.key,
        source="folder",
        group=item.group,
        licence=(entry.line.licence if entry else None) or chosen.licence,
        domain=(entry.line.domain if entry else "") or chosen.domain,
        truth=_sidecar.truth(entry, info.width, info.height, _below(root, entry)) if entry else None,
    )


def _root(options: Options) -> Path:
    root = options.path.expanduser()
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise SourceError(
            f"expected a folder of photos, but it {found}", where=str(options.path), fix="correct source.path"
        )
    return root.resolve()


def _files(root: Path, recursive: bool) -> list[str]:
    """Relative posix paths of all files, sorted."""

    def fail(error: OSError) -> None:
        raise SourceError(f"cannot be listed ({error.strerror})", where=str(error.filename)) from error

    found = []
    for folder, inner, files in os.walk(root, onerror=fail):
        inner[:] = [name for name in inner if recursive and not name.startswith(".")]
        below = Path(folder).relative_to(root)
        found += [(below / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(found)


def _is_photo(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in SUFFIXES


def _entries(root: Path, files: Sequence[str]) -> dict[str, _sidecar.Entry]:
    """Lines of every sidecar, by the photo's path from the root."""
    entries: dict[str, _sidecar.Entry] = {}
    for name in files:
        if PurePosixPath(name).name == _sidecar.NAME:
            below = PurePosixPath(name).parent
            entries |= {(below / file).as_posix(): entry for file, entry in _sidecar.read(root / name).items()}
    return entries


def _entry(root: Path, key: str) -> _sidecar.Entry | None:
    for folder in PurePosixPath(key).parents:
        path = root / folder / _sidecar.NAME
        if path.is_file():
            found = _sidecar.read(path).get(PurePosixPath(key).relative_to(folder).as_posix())
            if found is not None:
                return found
    return None


def _below(root: Path, entry: _sidecar.Entry) -> PurePosixPath:
    """The sidecar's folder from the root."""
    return PurePosixPath(entry.folder.relative_to(root).as_posix())


def _groups(root: Path, entries: Mapping[str, _sidecar.Entry]) -> dict[str, str]:
    """Group of every photo that a line names, itself or as another view of its own; a photo's own word goes first."""
    own = {name: entry.line.group for name, entry in entries.items() if entry.line.group}
    led: dict[str, str] = {}
    for name, entry in entries.items():
        others = [(_below(root, entry) / other).as_posix() for other in entry.other_views()]
        if others:
            led |= dict.fromkeys([name, *others], own.get(name, _alone(name)))
    return led | own


def _alone(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def _item(root: Path, name: str, groups: Mapping[str, str], options: Options) -> SourceItem:
    entry = _entry(root, name)
    default = str(PurePosixPath(name).parent) if options.group == "folder" else _alone(name)
    group = groups.get(name, default)
    if entry is not None:
        try:
            info = inspect(_read(root, name))
            _sidecar.check_sizes(entry, info.width, info.height)
        except ImageError:
            pass  # loading it will say what is wrong, and the run will count it
    return SourceItem(key=name, fingerprint=_fingerprint(root, name), group=group)


def _fingerprint(root: Path, name: str) -> str:
    try:
        with _inside(root, name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (ImageError, OSError):
        return "unreadable"


def _read(root: Path, name: str) -> bytes:
    path = _inside(root, name)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ImageError(f"too_large: {size} bytes, at most {MAX_BYTES}", where=name)
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"unreadable: {error.strerror}", where=name) from None


def _inside(root: Path, name: str) -> Path:
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ImageError(
            "outside_root: a link that leaves the folder", where=name, fix="copy the photo into the folder"
        )
    return path


def _nothing(files: Sequence[str], options: Options) -> str:
    suffixes = Counter(PurePosixPath(name).suffix.lower() or "no suffix" for name in files)
    found = ", ".join(f"{n} {suffix}" for suffix, n in sorted(suffixes.items())) or "no files"
    depth = "in it and its subfolders" if options.recursive else "directly in it"
    return f"no photos: looked for {' '.join(SUFFIXES)} {depth}, found {found}"


def _advice(root: Path, options: Options) -> str:
    deeper = 0 if options.recursive else sum(_is_photo(name) for name in _files(root, recursive=True))
    if deeper:
        return f"set source.recursive=true: its subfolders hold {deeper} photos"
    return "point source.path at a folder of photos; other formats must be converted first"


SOURCE = Source(name="folder", version=1, options=Options, list=list_items, load=load)
