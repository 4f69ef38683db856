import json

import numpy as np
import pandas as pd

from experiments.metrics.scores import Scores

CAPTIONS = ["=cmd()", "'quoted", '@a, "b"\nc', "<script>|", "NA", " -1", "ünïcode \\input{x}"]


def test_scores_come_back_as_they_were_saved(write_row, tmp_path):
    pictures = [np.zeros((8, 8, 3), np.uint8)] * len(CAPTIONS)
    rows = [write_row(tmp_path, name, pictures, CAPTIONS) for name in ("one", "two")]
    scores = Scores.of(rows)
    scores.add_column("SSIM", "ssim", "higher")
    scores.add_mean("one", "SSIM", [0.5, 0.7, np.nan])
    scores.add("two", "SSIM", None, 0)
    scores.add_per_image("one", "ssim", np.array([0.5, 0.7] + [np.nan] * 5))
    scores.add_beside("one", "SSIM", "5th percentile", 0.51)
    scores.notes.append("a note")
    scores.save(tmp_path / "run")
    loaded = Scores.load(tmp_path / "run")
    assert loaded.figures == scores.figures
    assert loaded.counts == scores.counts
    assert loaded.notes == ["a note"]
    assert loaded.beside == {"one": {"SSIM": {"5th percentile": 0.51}}, "two": {}}
    assert loaded.protocol == scores.protocol
    assert loaded.per_image["prompt"].tolist() == CAPTIONS * 2
    assert loaded.per_image["ssim"].dropna().tolist() == [0.5, 0.7]
    cells = pd.read_csv(tmp_path / "run/per_image.csv", keep_default_na=False)["prompt"]
    assert not [c for c in cells if c.startswith(("=", "+", "-", "@"))]


def test_a_mean_without_values_is_undefined_not_nan(write_row, tmp_path):
    scores = Scores.of([write_row(tmp_path, "r", [np.zeros((8, 8, 3), np.uint8)])])
    scores.add_mean("r", "PSNR (dB)", [np.nan])
    assert scores.figures["r"] == {"PSNR (dB)": None}
    assert scores.counts["r"] == {"PSNR (dB)": 0}


def test_files_from_before_tails_were_kept_can_be_read(write_row, tmp_path):
    row = write_row(tmp_path, "r", [np.zeros((8, 8, 3), np.uint8)])
    Scores.of([row]).save(tmp_path / "run")
    saved = json.loads((tmp_path / "run/metrics.json").read_text())
    del saved["beside"]
    (tmp_path / "run/metrics.json").write_text(json.dumps(saved))
    assert Scores.load(tmp_path / "run").beside == {}
