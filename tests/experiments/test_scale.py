"""Very many finished images are looked through quickly and in little memory."""

import json
import subprocess
import sys

import pytest
from commands import ROOT


@pytest.mark.parametrize("store", ["files", "zip"])
@pytest.mark.parametrize("images", [2000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_resume_scan_and_aggregation(tmp_path, store, images):
    """The script itself asserts that the one truncated image is found, and the mean of a fact."""
    out = tmp_path / "scale.json"
    script = [sys.executable, ROOT / "scripts" / "scale_images.py", f"images={images}"]
    done = subprocess.run(
        [*script, f"store={store}", f"folder={tmp_path / 'images'}", f"out={out}"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["images"] == images
    for part in ("scan", "aggregate"):
        assert found[f"{part}_s"] <= 60
        assert found[f"{part}_mb"] < 500
