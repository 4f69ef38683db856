"""Looking at a machine before a run, by the commands that users type."""

import os
import subprocess
import sys

import pytest
from commands import ROOT

from experiments import doctor, prefetch
from experiments.common.errors import ConfigError
from experiments.setup.prefetch import needed


def run(module, *arguments, **env):
    return subprocess.run(
        [sys.executable, "-m", f"experiments.{module}", *arguments],
        cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def test_the_toy_world_is_complete(tmp_path):
    done = run("doctor", "benchmark=toy", "device=cpu", f"results={tmp_path}", "data=/nowhere")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith("ok  ") for line in lines[:-1])
    assert lines[-1] == "all checks passed"
    assert any("128 x 128 painted in 2 steps" in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_named_with_its_remedy(tmp_path):
    hub = {"HF_HOME": str(tmp_path / "hub"), "TORCH_HOME": str(tmp_path / "torch")}
    done = run("doctor", "benchmark=coco2017_5k", "device=cpu", f"results={tmp_path}",
               f"data={tmp_path}/data", **hub)  # fmt: skip
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL ")]
    for what in ("settings", "model", "weights inception_weights", "weights clip_model",
                 "prompts", "reference", "image"):  # fmt: skip
        (line,) = [line for line in failed if line.startswith(f"FAIL {what}: ")]
        assert "; " in line
    assert "python -m experiments.prefetch" in done.stdout
    assert f"error: {len(failed)} checks failed" in done.stderr


def test_an_unknown_key_is_one_line():
    for command, argument in ((doctor.doctor, "metod=tome"), (prefetch.prefetch, "method.rato=1")):
        with pytest.raises(ConfigError, match=argument.split("=")[0]) as caught:
            command([argument])
        assert "\n" not in str(caught.value)


def test_nothing_is_to_be_fetched_for_the_toy_world():
    done = run("prefetch", "benchmark=toy")
    assert done.returncode == 0, done.stderr
    assert "everything is there" in done.stdout


@pytest.fixture
def composed():
    from hydra import compose, initialize_config_dir

    def make(*overrides):
        with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
            return compose("config", list(overrides))

    return make


def test_what_a_coco_benchmark_needs(composed, tmp_path):
    cfg = composed("benchmark=coco2017_5k", f"data={tmp_path}")
    found = {item.what: item for item in needed(cfg)}
    assert set(found) == {
        "model", "weights inception_weights", "weights clip_model", "captions", "photographs",
    }  # fmt: skip
    assert found["model"].pipeline
    assert found["weights inception_weights"].source.startswith("https://")
    assert found["captions"].source.endswith("/annotations/annotations_trainval2017.zip")
    assert found["photographs"].target == tmp_path / "coco" / "val2017.zip"
    (tmp_path / "coco" / "val2017").mkdir(parents=True)
    folder = ROOT / "experiments" / "toy" / "weights" / "pipeline"
    cfg = composed("benchmark=coco2017_5k", f"data={tmp_path}", f"model.path={folder}")
    assert {item.what for item in needed(cfg)} == (set(found) - {"model", "photographs"})


def test_no_network_is_one_line(tmp_path):
    done = run("prefetch", "benchmark=coco2017_5k", "dry_run=true", f"data={tmp_path}",
               HF_HOME=str(tmp_path / "hub"), HF_HUB_OFFLINE="1")  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: stable-diffusion-v1-5/stable-diffusion-v1-5: ")
