"""The self-contained page: what it embeds, and what it escapes."""

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from experiments.report.charts import pareto_front
from experiments.report.entry import write_report
from experiments.report.pictures import data_uri, pictures_of
from experiments.report.run_folder import read_run

NASTY = "<script>alert(1)</script> \\input{x} =cmd() </script> & 'quoted'"


@pytest.fixture
def folder(tmp_path, make_run):
    return make_run(
        tmp_path / "run", captions=("a red ring", NASTY, "a blue cross"), swept="interval"
    )


def embedded(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def test_the_page_holds_table_plots_pictures_and_protocol(folder):
    write_report(folder)
    page = (folder / "report.html").read_text()
    for text in ("Made-up figures", "CA-ToMe", "config 3", "Fewer steps", "PSNR (dB) ↑", "Pareto"):
        assert text in page
    assert page.count("Plotly.newPlot") >= 4
    data = embedded(page)
    assert next(row["name"] for row in data["rows"]) == "baseline"
    assert [prompt["text"] for prompt in data["prompts"]] == ["a red ring", NASTY, "a blue cross"]
    assert data["baseline"] == "baseline"
    first = data["prompts"][0]
    assert set(first["images"]) == {row["name"] for row in data["rows"]}
    assert "baseline" not in first["psnr"]
    assert len(first["psnr"]) == 3


def test_the_page_can_ask_for_nothing(folder):
    write_report(folder)
    page = (folder / "report.html").read_text()
    assert "default-src 'none'" in page
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)=[\"']?(?!data:|#)[^\"'>]", outside)


def test_captions_names_and_errors_are_escaped(folder):
    record = json.loads((folder / "rows" / "T0.7_every5.json").read_text())
    record["columns"]["method"] = NASTY
    (folder / "rows" / "T0.7_every5.json").write_text(json.dumps(record))
    write_report(folder)
    page = (folder / "report.html").read_text()
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_pictures_are_embedded_bit_for_bit_and_without_metadata(folder):
    run = read_run(folder)
    shown = pictures_of(run)
    path = run.painted["baseline"][0]
    kind, content = shown["prompts"][0]["images"]["baseline"].split(",", 1)
    assert kind == "data:image/webp;base64"
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    assert np.array_equal(np.asarray(image), np.asarray(Image.open(path)))
    assert not set(image.info) & {"exif", "xmp", "icc_profile"}
    assert shown["lossless"]


def test_large_pictures_are_previews():
    kind, content = data_uri(Image.new("RGB", (1024, 768), "red")).split(",", 1)
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (512, 384)


def test_the_budget_keeps_listed_and_worst_prompts(tmp_path, make_run, monkeypatch):
    folder = make_run(tmp_path, captions=tuple(f"caption {i}" for i in range(10)))
    run = read_run(folder)
    run.experiment["pictures"] = 4
    shown = pictures_of(run)
    # PSNR rises with the position in the made-up figures: the first are the worst, too.
    assert [prompt["position"] for prompt in shown["prompts"]] == [0, 1, 2, 3]
    monkeypatch.setattr("experiments.report.pictures.BUDGET", 1)
    assert len(pictures_of(read_run(folder))["prompts"]) == 1


def test_an_image_that_is_gone_is_left_out(folder):
    run = read_run(folder)
    run.painted["T0.7_config3"][0].unlink()
    assert "T0.7_config3" not in pictures_of(run)["prompts"][0]["images"]
    write_report(folder)


def test_a_page_without_figures(tmp_path, make_run):
    folder = make_run(tmp_path, swept=None)
    for name in ("metrics.json", "per_image.csv", "timing.json", "painted.json"):
        (folder / name).unlink()
    write_report(folder)
    page = (folder / "report.html").read_text()
    assert "newPlot" not in page
    assert not embedded(page)["prompts"]


def test_the_pareto_front():
    points = [(1.0, 5.0), (2.0, 9.0), (2.0, 8.0), (3.0, 7.0), (4.0, 10.0)]
    assert pareto_front(points, "higher") == [0, 1, 4]
    assert pareto_front([(x, -y) for x, y in points], "lower") == [0, 1, 4]
    assert pareto_front([], "lower") == []
