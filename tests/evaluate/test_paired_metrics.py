import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image
from torchmetrics.functional.image import structural_similarity_index_measure

from experiments.metrics import psnr
from experiments.metrics.entry import evaluate_rows
from experiments.painting.store import Prompt

METRICS = {"names": ["psnr", "ssim"]}


def test_psnr_by_hand_and_identical_images_apart(textured, write_row, tmp_path):
    pictures = textured(4, 31).clip(0, 245)
    changed = pictures.copy()
    changed[0] += 10  # every value: mean squared error 100
    changed[1, :48] += 10  # half of them: 50
    baseline = write_row(tmp_path, "baseline", pictures)
    row = write_row(tmp_path, "row", changed)
    scores = evaluate_rows([baseline, row], baseline, METRICS, tmp_path, "cpu")

    expected = [10 * np.log10(255**2 / 100), 10 * np.log10(255**2 / 50)]
    assert scores.figures["row"]["PSNR (dB)"] == pytest.approx(np.mean(expected), abs=1e-4)
    assert scores.counts["row"]["PSNR (dB)"] == 2
    assert scores.figures["row"]["identical images"] == 2
    table = scores.per_image[scores.per_image["row"] == "row"]
    assert table["psnr"].iloc[:2].tolist() == pytest.approx(expected, abs=1e-4)
    assert table["psnr"].iloc[2:].isna().all()
    assert table["ssim"].iloc[2:].isna().all()
    assert table["identical"].tolist() == [0, 0, 1, 1]
    assert 0.9 < scores.figures["row"]["SSIM"] < 1
    # The bad tail, of the images that differ.
    for column, values in (("PSNR (dB)", expected), ("SSIM", table["ssim"].iloc[:2])):
        tail = np.percentile(np.asarray(values, dtype=float), 5)
        assert scores.beside["row"][column] == {"5th percentile": pytest.approx(tail, abs=1e-4)}
    assert scores.beside["baseline"] == {}

    same = scores.figures["baseline"]
    assert same["PSNR (dB)"] is None
    assert same["SSIM"] is None
    assert same["identical images"] == 4


def test_ssim_against_scikit_style_formula_on_constant_images(write_row, tmp_path):
    # Two constant pictures have no variance: SSIM is the luminance term (2ab + c1)/(a² + b² + c1).
    dark, light = (np.full((32, 32, 3), v, np.uint8) for v in (51, 102))
    baseline = write_row(tmp_path, "baseline", [dark])
    row = write_row(tmp_path, "row", [light])
    scores = evaluate_rows([row], baseline, METRICS, tmp_path, "cpu")
    a, b, c1 = 0.2, 0.4, 0.01**2
    assert scores.figures["row"]["SSIM"] == pytest.approx(
        (2 * a * b + c1) / (a * a + b * b + c1), abs=2e-5
    )


def test_ssim_in_float32_agrees_with_float64(textured, write_row, tmp_path):
    one, other = textured(1, 35)[0], textured(1, 35, contrast=55)[0]
    baseline = write_row(tmp_path, "baseline", [one])
    scores = evaluate_rows(
        [write_row(tmp_path, "row", [other])], baseline, METRICS, tmp_path, "cpu"
    )
    tensors = [torch.from_numpy(x).permute(2, 0, 1)[None].double() / 255 for x in (one, other)]
    exact = structural_similarity_index_measure(*tensors, data_range=1.0)
    assert scores.figures["row"]["SSIM"] == pytest.approx(float(exact), abs=2e-5)


def test_pairs_are_found_by_prompt_and_seed_not_by_position(textured, write_row, tmp_path):
    pictures = textured(3, 32)
    baseline = write_row(tmp_path, "baseline", pictures)
    row = write_row(tmp_path, "row", pictures)
    turned = dataclasses.replace(row, prompts=row.prompts[::-1], images=row.images[::-1])
    extra = dataclasses.replace(
        turned,
        prompts=(*turned.prompts, Prompt("not in the baseline", 0)),
        images=(*turned.images, row.images[0]),
    )
    scores = evaluate_rows([extra], baseline, METRICS, tmp_path, "cpu")
    assert scores.figures["row"]["identical images"] == 3
    assert any("1 images have no counterpart" in note for note in scores.notes)
    assert scores.per_image["identical"].isna().tolist() == [False, False, False, True]


def test_pairs_are_compared_once_and_again_where_an_image_was_edited(
    textured, write_row, tmp_path, monkeypatch
):
    compared = []
    original = psnr._both
    monkeypatch.setattr(
        "experiments.metrics.psnr._both", lambda *pair: compared.append(1) or original(*pair)
    )
    baseline = write_row(tmp_path, "baseline", textured(3, 36))
    row = write_row(tmp_path, "row", textured(3, 36, contrast=50))
    first = evaluate_rows([baseline, row], baseline, METRICS, tmp_path, "cpu")
    assert len(compared) == 3
    assert (
        evaluate_rows([row], baseline, METRICS, tmp_path, "cpu").figures["row"]
        == (first.figures["row"])
    )
    assert len(compared) == 3
    Image.fromarray(textured(1, 37)[0]).save(baseline.images[2])
    again = evaluate_rows([row], baseline, METRICS, tmp_path, "cpu")
    assert len(compared) == 4
    assert again.figures["row"]["SSIM"] < first.figures["row"]["SSIM"]
    assert any("1 images of row baseline are not those" in note for note in again.notes)


def test_other_sizes_and_missing_files_are_named(textured, write_row, tmp_path):
    baseline = write_row(tmp_path, "baseline", textured(1, 33, size=64))
    row = write_row(tmp_path, "row", textured(1, 33, size=48))
    with pytest.raises(ValueError, match=r"row row: .*48 x 48 pixels.*64 x 64"):
        evaluate_rows([row], baseline, METRICS, tmp_path, "cpu")
    row.images[0].unlink()
    with pytest.raises(ValueError, match=r"row row: .* is missing; run the stage generate"):
        evaluate_rows([row], baseline, METRICS, tmp_path, "cpu")


def test_without_baseline_the_two_are_left_out_and_this_is_said(textured, write_row, tmp_path):
    row = write_row(tmp_path, "row", textured(1, 34, size=48))
    scores = evaluate_rows([row], None, METRICS, tmp_path, "cpu")
    assert scores.figures["row"] == {}
    assert "no images of the baseline" in scores.notes[0]
