"""Producers of tests spool into folders of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the producers of this test, and of the processes that it starts, spool."""
    folder = tmp_path / "spool"
    monkeypatch.setenv("STATEWRITER_SPOOL", str(folder))
    return folder
