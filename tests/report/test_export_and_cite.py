"""One archive of a run, with and without what tells who ran it; and whom a table has to cite."""

import getpass
import io
import json
import re
import socket
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from commands import ROOT
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from experiments import cite, export
from experiments.common.errors import ConfigError
from experiments.metrics.registry import METRICS
from experiments.metrics.scores import Scores
from experiments.report import citations
from experiments.report.archive import anonymise, cleaned
from experiments.report.entry import write_report
from experiments.report.run_folder import read_run

SECRET, COMMIT = "dr-jane-roe", "5eedc0ffee17"


@pytest.fixture
def run(tmp_path, make_run):
    """A run whose files name a home folder, a tracking entity, a commit and a host."""
    folder = make_run(tmp_path / "ablation", captions=("a red ring", "a blue / green cross"),
                      swept="interval")  # fmt: skip
    home = f"/home/{SECRET}/models/sd15"
    config = f"model:\n  path: {home}\ntracking:\n  name: wandb\n  entity: {SECRET}\n"
    (folder / "config.yaml").write_text(config)
    experiment = json.loads((folder / "experiment.json").read_text())
    experiment["code"]["commit"] = COMMIT
    (folder / "experiment.json").write_text(json.dumps(experiment))
    record = json.loads((folder / "rows" / "baseline.json").read_text())
    record["settings"]["model.path"] = home
    record["error"] = f"no file at {home} on {socket.gethostname()}"
    (folder / "rows" / "baseline.json").write_text(json.dumps(record))
    for path in (folder / "images").rglob("*.png"):
        noted = PngInfo()
        noted.add_text("catome", json.dumps({"host": SECRET}))
        Image.open(path).save(path, pnginfo=noted)
    write_report(folder)
    return folder


def archive(run, out, *more):
    command = [sys.executable, "-m", "experiments.export", f"run={run}", f"out={out}", *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_an_archive_holds_everything_but_the_full_pictures(run, tmp_path):
    done = archive(run, tmp_path / "a.zip", "images=1")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "a.zip") as packed:
        names = set(packed.namelist())
        for name in ("table.csv", "table.md", "table.tex", "protocol.json", "per_image.csv",
                     "report.html", "rows/baseline.json", "plots/along_interval.pdf",
                     "images/baseline/00000.png"):  # fmt: skip
            assert f"ablation/{name}" in names
        assert "ablation/images/baseline/00001.png" not in names
        image = Image.open(io.BytesIO(packed.read("ablation/images/baseline/00000.png")))
    assert not image.info
    original = Image.open(read_run(run).painted["baseline"][0])
    assert np.array_equal(np.asarray(image), np.asarray(original))


def test_the_same_run_gives_the_same_bytes(run, tmp_path):
    for name in ("a.zip", "b.zip"):
        assert archive(run, tmp_path / name, "anonymous=true").returncode == 0
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_an_anonymous_archive_tells_nobody(run, tmp_path):
    plain = archive(run, tmp_path / "plain.zip")
    assert plain.returncode == 0, plain.stderr
    done = archive(run, tmp_path / "blind.zip", "anonymous=true")
    assert done.returncode == 0, done.stderr

    def texts(path):
        with zipfile.ZipFile(path) as packed:
            return {name: packed.read(name).decode("latin-1") for name in packed.namelist()}

    telling = (SECRET, COMMIT, str(ROOT), str(run.parent), f"/home/{getpass.getuser()}")
    whole = "".join(texts(tmp_path / "plain.zip").values())
    assert all(text in whole for text in telling[:2])
    for name, content in texts(tmp_path / "blind.zip").items():
        for text in telling:
            assert text not in content, (name, text)
    blind = texts(tmp_path / "blind.zip")
    assert json.loads(blind["ablation/rows/baseline.json"])["settings"]["model.path"] == "sd15"
    assert "blue / green" in blind["ablation/report.html"]
    assert "Plotly.newPlot" in blind["ablation/report.html"]


def test_what_cannot_be_cleaned_fails(tmp_path):
    (tmp_path / "plot.pdf").write_bytes(b"%PDF made by dr-jane-roe on her machine")
    with pytest.raises(ConfigError, match=r"anonymous=true: plot\.pdf still holds 'dr-jane-roe'"):
        anonymise(tmp_path, [SECRET])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in /home/jane/models/sd15 and", "in sd15 and"),
        ("weights: ~/models/a.pt", "weights: a.pt"),
        ("https://github.com/a/b", "https://github.com/a/b"),
        ("a red / blue ring", "a red / blue ring"),
        ("baseline / row", "baseline / row"),
        ("s/im and GFLOPs/im", "s/im and GFLOPs/im"),
        ("<td>x</td><td/></tr>", "<td>x</td><td/></tr>"),
        ("<script>fetch('/a/b/c')</script>/a/b/c", "<script>fetch('/a/b/c')</script>c"),
    ],
)
def test_paths_are_cut_and_nothing_else(text, expected):
    assert cleaned(text, []) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run=nowhere"], "run=nowhere: must be the folder of an experiment's run"),
        ([], "run=null: must be the folder"),
        (["rnu=x"], "rnu=x: unknown key; known are run, out"),
    ],
)
def test_bad_arguments_end_in_one_line(arguments, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        export.export(arguments)


def test_citing_refuses_unknown_keys():
    with pytest.raises(ConfigError, match="runs=x: unknown key; known are run"):
        cite.cite(["runs=x"])


@pytest.mark.parametrize(
    ("column", "network", "other"),
    [
        ("Precision (VGG-16)", "simonyan2015very", "szegedy2016rethinking"),
        ("Precision (Inception)", "szegedy2016rethinking", "simonyan2015very"),
    ],
)
def test_precision_cites_the_network_that_it_used(run, column, network, other):
    scores = Scores.load(run)
    scores.add_column(column, "precision", "higher")
    for row in scores.figures:
        scores.add(row, column, 0.5, 8)
    scores.save(run)
    printed = cite.cite([f"run={run}"])
    assert "{kynkaanniemi2019improved," in printed
    assert f"{{{network}," in printed
    assert other not in printed


def test_a_run_is_cited(run):
    record = json.loads((run / "rows" / "baseline.json").read_text())
    record["settings"] |= {"generation.scheduler": "dpm++2m", "generation.guidance_scale": 7.5}
    (run / "rows" / "baseline.json").write_text(json.dumps(record))
    printed = cite.cite([f"run={run}"])
    expected = ["saghatchian2025catome", "bolya2023tomesd", "rombach2022latent", "wang2004ssim"]
    expected += ["liu2022pseudo", "lu2022dpmsolverpp", "ho2022guidance", "heusel2017gans"]
    for key in expected:
        assert f"{{{key}," in printed
    for key in ("lin2014coco", "zhang2018lpips", "song2021ddim"):
        assert key not in printed


def test_every_reference_is_a_whole_entry_and_in_use():
    entries = citations.references()
    for key, entry in entries.items():
        assert entry.count("{") == entry.count("}"), key
        for field in ("title", "author", "year"):
            assert re.search(rf"^  {field} = {{", entry, re.MULTILINE), (key, field)
    used = {*citations.PAINTED, *citations.SCHEDULERS.values(), *citations.PROMPTS.values()}
    used |= set(citations.PRC_NETWORKS.values())
    used |= {key for metric in METRICS.values() for key in metric.cites}
    used |= {"bolya2023tome", "bolya2023tomesd", "saghatchian2025catome", "ho2022guidance"}
    assert used == set(entries)


def test_every_metric_is_cited_or_needs_none():
    assert [name for name, metric in METRICS.items() if not metric.cites] == ["psnr"]
