"""Shared by all tests: where real data lies, no downloads."""

import os
from pathlib import Path

import pytest
from commands import ROOT

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that would download fails at once


@pytest.fixture(scope="session")
def coco_folder() -> Path | None:
    """The folder with captions_val2017.json and val2017/, if this machine has it."""
    candidates = [os.environ.get("CATOME_TEST_COCO"), ROOT.parent / "shared" / "coco"]
    for candidate in candidates:
        if candidate and (Path(candidate) / "captions_val2017.json").is_file():
            return Path(candidate)
    return None
