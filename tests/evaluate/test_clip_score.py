import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer

from experiments.common.errors import ConfigError
from experiments.metrics.clip_score import scaled_cosines
from experiments.metrics.entry import evaluate_rows
from experiments.metrics.frechet import frechet_distance, gaussian
from experiments.toy import scenes


def direct(folder, row):
    """100·cos straight from the model's own forward pass, one pair at a time."""
    model = CLIPModel.from_pretrained(folder).eval()
    processor = CLIPImageProcessor.from_pretrained(folder)
    tokenizer = CLIPTokenizer.from_pretrained(folder)
    values, features = [], []
    for path, prompt in zip(row.images, row.prompts, strict=True):
        inputs = {
            **processor(images=Image.open(path), return_tensors="pt"),
            **tokenizer(prompt.text, return_tensors="pt"),
        }
        with torch.no_grad():
            out = model(**inputs)
        values.append(100 * float((out.image_embeds * out.text_embeds).sum()))
        with torch.no_grad():
            pooled = model.vision_model(inputs["pixel_values"]).pooler_output
            features.append(model.visual_projection(pooled)[0].numpy())
    return np.array(values), np.stack(features)


@pytest.fixture(scope="module")
def scores(scorer, scene_rows, tmp_path_factory):
    metrics = {
        "names": ["fd_toy", "clip_toy", "clip_score", "fd_clip"],
        "scorer": str(scorer),
        "clip_model": str(scorer),
        "fd_clip_model": str(scorer),
        "reference": str(scene_rows[0].images[0].parent),
        "reference_scenes": 80,
        "batch_size": 4,
    }
    return evaluate_rows(scene_rows, None, metrics, tmp_path_factory.mktemp("cache"), "cpu")


def test_clip_scores_equal_the_models_own_forward(scorer, scene_rows, scores):
    table = scores.per_image
    for row in scene_rows:
        expected, _ = direct(scorer, row)
        found = table[table["row"] == row.row]
        assert np.allclose(found["clip_toy"].astype(float), expected, atol=1e-3)
        assert scores.figures[row.row]["CLIP (toy)"] == pytest.approx(expected.mean(), abs=1e-3)
    assert table["clip_toy"].nunique() > 6  # captions and pictures matter


def test_the_column_says_which_model_and_which_scaling(scorer, scores):
    column = f"CLIP score ({scorer.name}, 100·cos)"
    assert scores.figures["merged"][column] == scores.figures["merged"]["CLIP (toy)"]
    assert scores.protocol["columns"][column] == {"metric": "clip_score", "better": "higher"}


def test_hessels_scaling_is_in_the_name_and_nothing_is_below_zero(scorer, scene_rows, tmp_path):
    metrics = {"names": ["clip_score"], "clip_model": str(scorer), "clip_scaling": "hessel"}
    found = evaluate_rows(scene_rows, None, metrics, tmp_path, "cpu")
    column = f"CLIP score ({scorer.name}, 2.5·max(cos, 0))"
    cosines, _ = direct(scorer, scene_rows[1])
    expected = 2.5 * np.maximum(cosines / 100, 0)
    assert found.figures["merged"] == {column: pytest.approx(expected.mean(), abs=1e-5)}
    vectors = np.array([[1.0, 0], [0, 2]])
    assert scaled_cosines(vectors, -vectors, "hessel").tolist() == [0, 0]
    assert scaled_cosines(vectors, -vectors, "cosine100").tolist() == [-100, -100]
    assert scaled_cosines(vectors, 3 * vectors, "hessel").tolist() == [2.5, 2.5]


def test_fd_clip_is_the_distance_in_the_models_features(scorer, scene_rows, scores):
    # The reference is the baseline's own pictures.
    sets = [gaussian(direct(scorer, row)[1]) for row in scene_rows]
    column = f"FD-CLIP ({scorer.name})"
    expected = frechet_distance(sets[1], sets[0])
    assert scores.figures["merged"][column] == pytest.approx(expected, rel=1e-3)
    assert scores.figures["baseline"][column] < 1e-3 * expected
    assert scores.protocol["fd_clip"]["reference_images"] == 6


def test_fd_toy_is_the_distance_to_held_out_scenes(write_row, scorer, scene_rows, scores, tmp_path):
    pictures = [scenes.render(s) for s in scenes.sample(80, 7919, held_out=True)]
    reference = write_row(tmp_path, "reference", pictures)
    _, target = direct(scorer, reference)
    for row in scene_rows:
        _, features = direct(scorer, row)
        expected = frechet_distance(gaussian(features), gaussian(target))
        assert scores.figures[row.row]["FD (toy features)"] == pytest.approx(expected, rel=1e-3)
    assert any("rank-deficient" in note and "n = 6" in note for note in scores.notes)


def test_captions_longer_than_the_model_reads_are_cut_and_counted(write_row, scorer, tmp_path):
    long = "a large red ring left of " * 8 + "a small blue cross"
    row = write_row(tmp_path, "r", [np.zeros((64, 64, 3), np.uint8)] * 2, [long, "a red ring"])
    metrics = {"names": ["clip_toy"], "scorer": str(scorer)}
    scores = evaluate_rows([row], None, metrics, tmp_path, "cpu")
    assert any("1 prompts were cut to 32 tokens" in note for note in scores.notes)


def test_a_folder_with_another_model_is_refused(write_row, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    row = write_row(tmp_path, "r", [np.zeros((64, 64, 3), np.uint8)])
    with pytest.raises(ConfigError, match=r"metrics.scorer=.*not a model of type bert"):
        evaluate_rows(
            [row], None, {"names": ["clip_toy"], "scorer": str(tmp_path)}, tmp_path, "cpu"
        )


def test_a_hub_model_out_of_reach_names_the_key(write_row, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    row = write_row(tmp_path, "r", [np.zeros((64, 64, 3), np.uint8)])
    metrics = {"names": ["clip_score"], "clip_model": "nobody/no-such-model"}
    with pytest.raises(ConfigError, match=r"metrics\.clip_model=nobody/no-such-model: ") as caught:
        evaluate_rows([row], None, metrics, tmp_path, "cpu")
    assert "\n" not in str(caught.value)


def test_a_scorer_whose_weights_are_incomplete_is_refused(write_row, scorer, tmp_path):
    folder = shutil.copytree(scorer, tmp_path / "cut")
    weights = load_file(folder / "model.safetensors")
    weights.pop("visual_projection.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    row = write_row(tmp_path, "r", [np.zeros((64, 64, 3), np.uint8)])
    with pytest.raises(ConfigError, match=r"lack visual_projection.weight"):
        evaluate_rows([row], None, {"names": ["clip_toy"], "scorer": str(folder)}, tmp_path, "cpu")


def test_weights_that_are_broken_or_would_run_code_are_refused_in_one_line(
    write_row, scorer, reckless, tmp_path, capsys
):
    row = write_row(tmp_path, "r", [np.zeros((64, 64, 3), np.uint8)])
    folder = shutil.copytree(scorer, tmp_path / "broken")
    metrics = {"names": ["clip_toy"], "scorer": str(folder)}
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:1000])
    with pytest.raises(ConfigError, match=r"metrics.scorer=.*broken: cannot be loaded") as caught:
        evaluate_rows([row], None, metrics, tmp_path, "cpu")
    assert "\n" not in str(caught.value)
    (folder / "model.safetensors").unlink()
    torch.save(reckless, folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"metrics.scorer=.*broken: cannot be loaded") as caught:
        evaluate_rows([row], None, metrics, tmp_path, "cpu")
    assert "\n" not in str(caught.value)
    assert "unpickled" not in capsys.readouterr().out
