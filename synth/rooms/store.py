"""Rendered rooms on disk: one compressed file a seed and size, with every view and its truth.

The file system is the journal: a file that exists under its final name and can be read is done, so a killed
run is resumed by calling `ensure` again, and several runs may fill one folder.
"""

import multiprocessing
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

from synth.errors import RunError, SourceError
from synth.files import atomic
from synth.rooms.compose import compose
from synth.rooms.render import RENDERER_VERSION, RoomFrame, render_views

_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError)


def ensure(
    seeds: Sequence[int],
    size: int,
    folder: Path,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Renders both views, `size` x `size` px, of every seed that `folder` lacks; damaged files are made anew.

    With workers > 1 rooms are rendered in spawned processes; then a script must call this under
    `if __name__ == "__main__"`. With one worker they are rendered here, and this process must not fork then.
    progress is called with (done, total) seeds: at the start, and after each room.
    """
    wanted = list(dict.fromkeys(seeds))
    folder.mkdir(parents=True, exist_ok=True)
    missing = [seed for seed in wanted if _read(path_of(seed, size, folder), seed, size) is None]
    done = len(wanted) - len(missing)
    if progress is not None:
        progress(done, len(wanted))
    for _ in _render_all(missing, size, folder, min(workers, len(missing))):
        done += 1
        if progress is not None:
            progress(done, len(wanted))


def load(seed: int, view: int, size: int, folder: Path) -> RoomFrame:
    """One view (0 or 1) of a room that `ensure` has rendered; SourceError if it is missing or damaged."""
    path = path_of(seed, size, folder)
    views = _read(path, seed, size)
    if views is None:
        found = "a damaged file" if path.exists() else "no file"
        raise SourceError(
            f"expected the rendered room {seed} at {size} px, found {found}",
            where=str(path),
            fix="render it with synth.rooms.store.ensure",
        )
    return views[view]


def path_of(seed: int, size: int, folder: Path) -> Path:
    """The file of one room; the renderer's version is in its name, so that stale pictures are never used."""
    return folder / f"room_{seed:06d}_{size}px_v{RENDERER_VERSION}.npz"


def _render_all(seeds: Sequence[int], size: int, folder: Path, workers: int) -> Iterator[int]:
    """Renders the rooms and yields each seed when its file is there."""
    if workers <= 1:
        yield from (_render_room(seed, size, folder) for seed in seeds)
        return
    # Spawned, because a process forked after a render hangs.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        for future in as_completed([pool.submit(_render_room, seed, size, folder) for seed in seeds]):
            yield future.result()
    except BrokenProcessPool as error:
        raise RunError(
            "a worker process died while rendering rooms; the rooms finished so far are kept",
            where=str(folder),
            fix="check the free memory (about 0.5 GB a worker), that the calling script has an "
            '`if __name__ == "__main__"` guard, or call again with one worker',
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _render_room(seed: int, size: int, folder: Path) -> int:
    """Renders one room into its file; returns the seed."""
    path = path_of(seed, size, folder)
    # Asked again here, because another run may have filled the gap meanwhile.
    if _read(path, seed, size) is None:
        _write(path, render_views(compose(seed), size))
    return seed


def _write(path: Path, views: Sequence[RoomFrame]) -> None:
    first = views[0]
    with atomic(path) as file:
        np.savez_compressed(
            file,
            seed=np.int64(first.seed),
            rgb=np.stack([view.rgb for view in views]),
            depth=np.stack([view.depth for view in views]),
            ids=np.stack([view.ids for view in views]),
            names=np.array(first.names),
            colours=np.array(first.colours),
            K=np.stack([view.K for view in views]),
            R=np.stack([view.R for view in views]),
            t=np.stack([view.t for view in views]),
        )


def _read(path: Path, seed: int, size: int) -> tuple[RoomFrame, ...] | None:
    """The views in the file; None if there is none, or if it is damaged or of another seed or size."""
    try:
        with np.load(path, allow_pickle=False) as file:
            data = {name: file[name] for name in file.files}
        if int(data["seed"]) != seed or data["rgb"].shape[1:] != (size, size, 3):
            return None
        names, colours = tuple(map(str, data["names"])), tuple(map(str, data["colours"]))
        return tuple(
            RoomFrame(
                seed=seed,
                view=view,
                rgb=data["rgb"][view],
                depth=data["depth"][view],
                ids=data["ids"][view],
                names=names,
                colours=colours,
                K=data["K"][view],
                R=data["R"][view],
                t=data["t"][view],
            )
            for view in range(len(data["rgb"]))
        )
    except _UNREADABLE:
        return None
