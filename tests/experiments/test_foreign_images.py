"""Pictures that others painted, scored by the command as users type it."""

import csv
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from commands import ROOT
from omegaconf import OmegaConf
from PIL import Image

from experiments import evaluate
from experiments.common.errors import ConfigError
from experiments.metrics.scores import Scores
from experiments.metrics.settings import check_metrics
from experiments.runner import foreign
from experiments.settings import protocols
from experiments.toy import scenes

SCORER = "metrics.scorer=experiments/toy/weights/scorer"


def write_pictures(folder, pictures: dict[str, np.ndarray]):
    for name, picture in pictures.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / name)
    return folder


def tiny(names, shade=0):
    return {name: np.full((8, 8, 3), 40 * i + shade, np.uint8) for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """One run: a baseline of four scenes, a copy that differs in two, and one without colours."""
    folder = tmp_path_factory.mktemp("foreign")
    drawn = scenes.sample(4, 3, held_out=True)
    names = ["img_2.png", "img_10.png", "img_1.png", "img_3.png"]
    pictures = {name: scenes.render(s) for name, s in zip(names, drawn, strict=True)}
    changed = {name: p.copy() for name, p in pictures.items()}
    for name in names[:2]:
        changed[name][30:90, 30:90] //= 2
    grey = {n: np.repeat(p.mean(axis=2, keepdims=True).astype(np.uint8), 3, axis=2)
            for n, p in pictures.items()}  # fmt: skip
    for label, of in (("original", pictures), ("merged", changed), ("grey", grey)):
        write_pictures(folder / label, of)
    captions = {name: scenes.caption(s) for name, s in zip(names, drawn, strict=True)}
    with (folder / "captions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "caption"])
        writer.writerows([*captions.items(), ("img_99.png", "a caption without a picture")])
    arguments = [
        f"images=[{folder / 'merged'},{folder / 'grey'}]", f"baseline={folder / 'original'}",
        f"prompts={folder / 'captions.csv'}", "protocol=sada", "names=[fid,clip_toy,psnr,ssim]",
        SCORER, f"results={folder / 'runs'}", "device=cpu", "metrics.batch_size=2",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "experiments.evaluate", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    return done, folder, captions


def out_of(scored):
    (out,) = (scored[1] / "runs" / "foreign").iterdir()
    return out


def test_the_table(scored):
    done, folder, _ = scored
    assert done.returncode == 0, done.stderr
    out = out_of(scored)
    assert str(out) in done.stdout
    with (out / "table.csv").open() as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["original", "merged", "grey"]
    assert [rows[row]["PSNR (dB) n"] for row in ("merged", "grey")] == ["2", "4"]
    assert 5 < float(rows["merged"]["PSNR (dB)"]) < 40
    for text in ("merged", "grey", "CLIP (toy)", "PSNR", "SSIM", "Left out, as reference= was not",
                 "How the images were painted is not known", "by their names"):  # fmt: skip
        assert text in done.stdout, done.stdout
    assert "fid" not in json.loads((out / "metrics.json").read_text())["protocol"]
    for name in ("table.md", "table.tex", "per_image.csv", "experiment.json", "painted.json"):
        assert (out / name).stat().st_size > 0
    assert not list(folder.rglob("*.tmp"))


def test_pictures_belong_to_their_prompts(scored):
    out, captions = out_of(scored), scored[2]
    scores = Scores.load(out)
    table = scores.per_image
    assert len(table) == 12
    assert all(captions[source] == text for source, text in zip(table["source"], table["prompt"],
                                                                 strict=True))  # fmt: skip
    merged = table[table["row"] == "merged"].set_index("source")
    assert list(merged.index) == ["img_1.png", "img_2.png", "img_3.png", "img_10.png"]
    assert list(merged["identical"]) == [1, 0, 1, 0]
    # Its own caption suits a scene better than the others' on the average.
    assert scores.figures["original"]["CLIP (toy)"] > 60


def test_the_protocol_and_where_this_departs(scored):
    done, _, _ = scored
    saved = json.loads((out_of(scored) / "experiment.json").read_text())
    assert saved["protocol"] == "sada"
    keys = {sentence.split(": ")[0] for sentence in saved["departures"]}
    assert keys == {"images", "metrics.names"}
    assert any("Not known of sada: " in note for note in saved["notes"])
    scored_on = json.loads((out_of(scored) / "metrics.json").read_text())["protocol"]["painted"]
    assert scored_on["format"] == "jpeg"
    assert scored_on["quality"] == 75
    assert "sada" in done.stdout


def test_the_same_images_under_several_protocols(tmp_path, textured_pairs, capsys):
    base, merged = textured_pairs
    code = evaluate.main([
        f"images={merged}", f"baseline={base}", "protocol=[tomesd,sada]", "names=[psnr,fd_toy]",
        SCORER, "metrics.reference_scenes=20", f"out={tmp_path / 'out'}",
        f"results={tmp_path / 'runs'}", "device=cpu",
    ])  # fmt: skip
    printed = capsys.readouterr()
    assert code == 0, printed.err
    table = pd.read_csv(tmp_path / "out" / "protocols.csv")
    assert list(table) == ["figure", "row", "tomesd", "sada"]
    cells = table.set_index(["figure", "row"]).loc
    # The JPEG that sada's images went through changes features; PSNR is of the PNGs.
    one, other = cells["FD (toy features)", "merged"]
    assert one != pytest.approx(other, rel=1e-5)
    assert cells["PSNR (dB)", "merged"].nunique() == 1
    assert "## The same images under several protocols" in printed.out
    for name in ("tomesd", "sada"):
        assert (tmp_path / "out" / name / "table.md").is_file()
        assert json.loads((tmp_path / "out" / name / "experiment.json").read_text())[
            "protocol"] == name  # fmt: skip


@pytest.fixture
def textured_pairs(tmp_path):
    drawn = scenes.sample(4, 3, held_out=True)
    pictures = {f"{i}.png": scenes.render(s) for i, s in enumerate(drawn)}
    changed = {name: p.copy() for name, p in pictures.items()}
    for picture in changed.values():
        picture[30:90, 30:90] //= 2
    return write_pictures(tmp_path / "base", pictures), write_pictures(tmp_path / "merged", changed)


@pytest.mark.parametrize("name", protocols.names())
def test_the_metrics_of_every_protocol_can_be_asked_for(tmp_path, name):
    photographs = write_pictures(tmp_path / "reference", tiny(["1.png", "2.png"]))
    metrics = OmegaConf.to_container(protocols.load(name).metrics)
    checked = check_metrics({**metrics, "reference": str(photographs)})
    assert checked["names"] == metrics["names"]
    assert {"filter": "lanczos", **metrics.get("painted", checked["painted"])} == checked["painted"]


def test_numbers_in_names_count_by_value():
    assert foreign.in_order(["b10.png", "b9.png", "a/2.png", "b009.png", "a/11.png"]) == [
        "a/2.png", "a/11.png", "b009.png", "b9.png", "b10.png",
    ]  # fmt: skip


def test_names_match_with_folder_suffix_and_zeros():
    wanted = ["000000000139.jpg", "000000000285.jpg", "x/1.png", "y/1.png"]
    found = foreign.by_name(["139.png", "000000000285.png", "y/1.webp", "1.png"], wanted)
    assert found == {
        "139.png": "000000000139.jpg", "000000000285.png": "000000000285.jpg",
        "y/1.webp": "y/1.png", "1.png": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", "name,prompt\nb.png,second\na.png,first\n"),
        ("p.json", '[{"file": "b", "prompt": "second"}, {"file": "a", "prompt": "first"}]'),
        ("p.json", '{"b.png": " second ", "a.png": "first"}'),
        ("p.json", '{"images": [{"id": 7, "file_name": "b.jpg"}, {"id": 8, "file_name": "a.jpg"}],'
         '"annotations": [{"id": 1, "image_id": 7, "caption": "second"},'
         '{"id": 2, "image_id": 8, "caption": "first"}]}'),
        ("p.txt", "first\n\nsecond\n"),
        ("p.json", '["first", "second"]'),
        ("p.csv", "prompt\nfirst\nsecond\n"),
    ],
)  # fmt: skip
def test_every_kind_of_prompts(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    folder = write_pictures(tmp_path / "pictures", tiny(["a.png", "b.png"]))
    rows, baseline, _, notes = foreign.load_rows([folder], None, tmp_path / name, tmp_path)
    assert baseline is None
    assert [p.text for p in rows[0].prompts] == ["first", "second"]
    assert [path.name for path in rows[0].images] == ["a.png", "b.png"]
    assert any("belong to the prompts" in note for note in notes)


def test_rows_without_prompts_pair_by_name_or_else_by_order(tmp_path):
    base = write_pictures(tmp_path / "base", tiny(["1.png", "2.png", "3.png"]))
    some = write_pictures(tmp_path / "some", tiny(["3.jpg", "1.jpg"], 5))
    rows, baseline, _, _ = foreign.load_rows([some], base, None, tmp_path)
    assert [row.row for row in rows] == ["base", "some"]
    assert baseline is rows[0]
    keys = {prompt.source: prompt.key for prompt in baseline.prompts}
    assert [p.key for p in rows[1].prompts] == [keys["1.png"], keys["3.png"]]
    other = write_pictures(tmp_path / "other", tiny(["x.png", "y.png", "z.png"], 9))
    rows, baseline, _, notes = foreign.load_rows([other], base, None, tmp_path)
    assert [p.key for p in rows[1].prompts] == [p.key for p in baseline.prompts]
    assert any("in the order of their names" in note for note in notes)
    with pytest.raises(ConfigError, match="holds 2 images, baseline holds 3; must be as many"):
        foreign.load_rows([write_pictures(tmp_path / "two", tiny(["ab.png", "cd.png"]))],
                          base, None, tmp_path)  # fmt: skip


def test_a_painter_is_its_names_and_contents(tmp_path):
    one = write_pictures(tmp_path / "a" / "same", tiny(["1.png", "2.png"]))
    copy = write_pictures(tmp_path / "b" / "same", tiny(["1.png", "2.png"]))
    other = write_pictures(tmp_path / "c" / "same", tiny(["1.png", "2.png"], 1))
    rows, _, _, _ = foreign.load_rows([one, copy, other, one], None, None, tmp_path)
    assert [row.row for row in rows] == ["same", "same-2", "same-3"]
    assert rows[0].painter == rows[1].painter != rows[2].painter


@pytest.fixture
def refused(capsys, tmp_path):
    """The command in this process: the one line with which it ends, nothing written."""

    def call(*arguments: str) -> str:
        code = evaluate.main([*arguments, f"results={tmp_path / 'runs'}", "device=cpu"])
        lines = capsys.readouterr().err.strip().splitlines()
        told = [line for line in lines if line.startswith("error: ")]
        assert code == 1
        assert len(told) == 1, lines
        assert not (tmp_path / "runs" / "foreign").exists()
        return told[0]

    return call


def test_bad_input(tmp_path, refused):
    folder = write_pictures(tmp_path / "pictures", tiny(["a.png", "b.png"]))
    base = write_pictures(tmp_path / "base", tiny(["a.png", "b.png"], 3))
    (tmp_path / "empty").mkdir()
    (tmp_path / "three.txt").write_text("1\n2\n3\n")
    (tmp_path / "named.csv").write_text("file,prompt\na.png,one\nc.png,two\n")
    (tmp_path / "twice.csv").write_text("file,prompt\na.png,one\na.png,two\n")
    (tmp_path / "one.csv").write_text("file,prompt\na.png,one\n")
    (tmp_path / "bad.json").write_text("{")
    images, toy = f"images={folder}", ["names=[clip_toy]", SCORER]
    assert "images=null" in refused("names=[psnr]")
    assert "images=/nowhere: no such folder" in refused("images=/nowhere", "names=[isc]")
    assert "empty: must be a folder with" in refused(
        f"images={tmp_path / 'empty'}", f"baseline={folder}", "names=[psnr]"
    )
    assert "imagse=" in refused("imagse=x", images)
    assert "nothing is left to measure; give prompts, baseline, reference" in refused(images)
    for wrong in ("mine", "[mine]", "[sada,mine]"):
        told = refused(images, f"protocol={wrong}")
        assert "protocol=mine: must be one of cache_dit, deepcache" in told
    for wrong in ("[]", "[sada,sada]"):
        assert "must name a protocol, or several once each" in refused(images, f"protocol={wrong}")
    assert "metrics.names=psnrr" in refused(images, "names=[psnrr]")
    assert "metrics.batchsize=3: unknown key" in refused(
        images, f"baseline={base}", "names=[psnr]", "metrics.batchsize=3"
    )
    assert "metrics=3" in refused(images, "metrics=3")
    assert "holds 2 images, prompts holds 3; must be as many" in refused(
        images, f"prompts={tmp_path / 'three.txt'}", *toy
    )
    assert "1 of 2 images are not named in prompts, first b.png" in refused(
        images, f"prompts={tmp_path / 'named.csv'}", *toy
    )
    assert "names a.png twice" in refused(images, f"prompts={tmp_path / 'twice.csv'}", *toy)
    assert "prompts=/nowhere.txt: no such file" in refused(images, "prompts=/nowhere.txt", *toy)
    assert "three.txt: must be a folder that can be written to" in refused(
        images, f"baseline={base}", "names=[psnr]", f"out={tmp_path / 'three.txt'}"
    )
    assert "bad.json: is not JSON" in refused(images, f"prompts={tmp_path / 'bad.json'}", *toy)
    both = write_pictures(tmp_path / "both", {**tiny(["a.png"]), **tiny(["a.jpg"])})
    assert "both belong to a.png" in refused(
        f"images={both}", f"prompts={tmp_path / 'one.csv'}", *toy
    )


def test_pictures_of_unequal_size_and_broken_ones_are_named(tmp_path, refused):
    folder = write_pictures(tmp_path / "pictures", tiny(["a.png", "b.png"]))
    base = write_pictures(tmp_path / "base", {n: np.zeros((9, 8, 3), np.uint8) for n in
                                              ("a.png", "b.png")})  # fmt: skip
    error = refused(f"images={folder}", f"baseline={base}", "names=[psnr]")
    assert "a.png has 8 x 8 pixels" in error
    (folder / "a.png").write_bytes(b"no picture")
    error = refused(f"images={folder}", f"baseline={base}", "names=[psnr]")
    assert "a.png: cannot be read as an image" in error
