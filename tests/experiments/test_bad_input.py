"""Bad input ends in one line that names the key, the value and what is allowed."""

import json
import sys

import pytest
from commands import QUICK
from hydra.core.global_hydra import GlobalHydra

import run
from experiments.accelerators import base
from experiments.accelerators.none import NoMerging


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """`python run.py ...` in this process: (exit code, the lines on stderr)."""

    def call(*arguments):
        GlobalHydra.instance().clear()
        settings = [*QUICK, f"results={tmp_path / 'runs'}", *arguments]
        monkeypatch.setattr(sys, "argv", ["run.py", *settings])
        code = run.main()
        return code, capsys.readouterr().err.strip().splitlines()

    return call


BAD = {
    "method.rato=0.3": ["method.rato=0.3: unknown key", "threshold"],
    "generaton.steps=3": ["generaton", "unknown key", "generation"],
    "method=tome method.ratio=1.2": ["method.ratio=1.2", "0 to 1"],
    "method=tome method.ratio=-0.1": ["method.ratio=-0.1", "0 to 1"],
    "method=tome method.ratio=much": ["method.ratio=", "much", "0 to 1"],
    "method.threshold=warm": ["method.threshold=", "warm"],
    "method.window=3": ["method.window=3", "multiple of stride=2"],
    "method.window=12": ["method.window=12", "must divide the token grid", "32 x 32"],
    "method.refresh=-5": ["method.interval=-5", "integer >= 1"],
    "method.refresh=0": ["method.interval=0", "integer >= 1"],
    "method.refresh=[8,0]": ["method.checkpoints=", "increasing order"],
    "method.refresh=[0,1.5]": ["method.checkpoints=", "integers"],
    "method.refresh=config9": ["method.refresh=config9", "config3", "every5"],
    "method=ca_tome method.ratio=0.3": ["method.ratio=0.3", "method", "exactly one"],
    "pictures=-1": ["pictures=-1", "integer >= 0"],
    "keep_images=0": ["keep_images=0", "integer >= 1"],
    "method.cache=official": ["method.cache=", "Checkpoints"],
    "method.count=row": ["method.count=", "image", "batch"],
    "method.merge=[attn3]": ["method.merge=", "attn1"],
    "method=magic": ["method=magic", "must be one of", "ca_tome"],
    "benchmark=imagenet22k": ["benchmark=imagenet22k", "sd15_imagenet"],
    "+experiment=ablation": ["experiment=ablation", "ablation_cache"],
    "+experiment=compare_methods rows=[basline]": ["rows=['basline']", "baseline", "ca_tome"],
    "+experiment=ablation_ratio sweep.ratios=[0.2,1.2]": ["method.ratio=1.2", "0 to 1"],
    "+experiment=ablation_ratio sweep.ratios=0.2": ["each.ratio=0.2", "must be a list"],
    "stages=[paint]": ["stages=paint", "generate, evaluate, time, report"],
    "stages=[]": ["stages=[]", "generate"],
    "debug=all": ["debug=all", "row"],
    "+experiment=ablation_cache plan=prices": ["plan=prices", "power"],
    "plan=power": ["plan=power", "+experiment"],
    "+experiment=ablation_cache plan=power": ["plan=power", "finished pilot"],
    "power.probability=much": ["power.probability=much", "> 0 and < 1"],
    "power.probability=1": ["power.probability=1", "> 0 and < 1"],
    "power.difference.psnr=much": ["power.difference.psnr=much", "> 0"],
    "power.difference=3": ["power.difference=3", "by metric"],
    "prompts.tune_share=1.5": ["prompts.tune_share=1.5", "<= 1"],
    "protocol=nope": ["protocol=nope", "cache_dit", "tomesd"],
    "replicates=0": ["replicates=0", "integer >= 1"],
    "prompts.split=test": ["prompts.split=test", "tune, report"],
    "seed=-1": ["seed=-1", "integer >= 0"],
    "dtype=float8": ["dtype=float8", "bfloat16"],
    "attention=sage": ["attention=sage", "fused, math"],
    "generation.scheduler=pndm": ["generation.scheduler=pndm", "plms"],
    "generation.steps=0": ["generation.steps=0", "integer >= 1"],
    "generation.height=100": ["generation.height=100", "multiple of 8"],
    "prompts.limit=0": ["prompts.limit=0", "integer >= 1"],
    "prompts.limit=9": ["prompts.limit=9", "at most 8"],
    "prompts.path=/nowhere/p.txt": ["prompts.path=/nowhere/p.txt", "no such file"],
    "model.path=/nowhere/model": ["model.path=/nowhere/model", "model_index.json"],
    "device=cuda:7": ["device=cuda:7", "CUDA devices found"],
    "device=cuda:x": ["device=cuda:x", "cuda:<n>"],
    "device=tpu": ["device=tpu", "auto, cpu, cuda"],
    "results=/dev/null/runs": ["/dev/null/runs"],
    "method._target_=experiments.accelerators.none.Nothing": ["method._target_=", "Nothing"],
    "method._target_=collections.OrderedDict": ["method._target_=", "Method"],
    "+method.speed=9": ["method", "speed"],
    "metrics.names=[fidd]": ["metrics.names=", "fidd", "fid"],
    "tracking.name=mlflow": ["tracking.name=mlflow", "none, wandb"],
}


@pytest.mark.parametrize("arguments", BAD)
def test_one_line(command, tmp_path, arguments):
    code, lines = command(*arguments.split())
    told = [line for line in lines if line.startswith("error: ")]
    assert code == 1
    assert len(told) == 1, lines
    assert "Traceback" not in "\n".join(lines)
    for part in BAD[arguments]:
        assert part in told[0]
    assert not (tmp_path / "runs" / "images").exists()
    assert not list(tmp_path.rglob("table.*"))


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "holds no prompts"), ('{"annotations": 3}', "must be COCO captions")],
)
def test_prompt_files(command, tmp_path, content, message):
    path = tmp_path / "captions.json"
    path.write_text(content or "[]")
    code, lines = command(f"prompts.path={path}")
    assert code == 1
    assert lines[-1].startswith(f"error: prompts.path={path}: ")
    assert message in lines[-1]


def test_a_folder_of_another_pipeline(command, tmp_path):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    code, lines = command(f"model.path={tmp_path}")
    assert code == 1
    assert "FluxPipeline" in lines[-1]
    assert "StableDiffusionPipeline" in lines[-1]


def test_a_method_must_have_its_own_revision(tmp_path):
    class Mine(base.Method):
        pass

    class Derived(NoMerging):
        pass

    for kind in (Mine, Derived):
        with pytest.raises(ValueError, match=f"{kind.__name__}: the class must set revision"):
            kind("mine")
