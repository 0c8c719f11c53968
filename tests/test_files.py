"""Files are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from synth.files import atomic, clear_temporary, sha256_file, write_json


def test_an_error_while_writing_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="stop"), atomic(path) as handle:
        handle.write(b"half")
        raise ValueError("stop")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_leftovers_of_a_killed_writer_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".shard-00000.parquet.123.tmp").write_bytes(b"half")
    (tmp_path / ".data.tmp").mkdir()
    (tmp_path / "kept.tmp").write_bytes(b"whole")
    clear_temporary(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".data.tmp", "kept.tmp"]
    clear_temporary(tmp_path / "absent")


def test_json_is_indented_and_refuses_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "x" / "a.json", {"b": [1, None]})
    assert (tmp_path / "x" / "a.json").read_text(encoding="utf-8").startswith('{\n  "b"')
    assert len(sha256_file(tmp_path / "x" / "a.json")) == 64
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "nan.json", {"a": float("nan")})
    assert not (tmp_path / "nan.json").exists()
