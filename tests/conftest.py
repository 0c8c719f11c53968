"""Shared fixtures. Tests use no network: the hub is switched off before anything can ask it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real photos, weights and replies beside the checkout; a user does not have them."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data is not here: real photos and replies are not part of the project")
    return SHARED


@pytest.fixture(scope="session")
def rooms_cache() -> Path:
    """Rendered rooms, kept between tests and runs (rendering a room costs about a second)."""
    return ROOT / "outputs" / "cache" / "rooms"
