"""Protocols of other works: sourced, composable, and honest about where a run departs."""

import re

import pytest
from commands import ROOT
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from experiments.settings import protocols

NAMES = ("cache_dit", "deepcache", "paper", "sada", "tomesd")
ADDRESS = re.compile(r"https://[\w.-]+/\S+")


@pytest.fixture
def run_of():
    """The configuration of a run, composed as run.py composes it."""
    defaults = OmegaConf.load(ROOT / "configs" / "config.yaml").defaults
    known = any("protocol" in entry for entry in defaults if OmegaConf.is_dict(entry))

    def call(*overrides: str):
        GlobalHydra.instance().clear()
        given = [f"+{o}" if o.startswith("protocol=") and not known else o for o in overrides]
        with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
            return compose("config", given)

    return call


def about(found: list[str], key: str) -> list[str]:
    return [sentence for sentence in found if sentence.startswith(f"{key}: ")]


def test_names():
    assert protocols.names() == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_has_its_source_or_is_unknown(name):
    protocol = OmegaConf.to_container(protocols.load(name).protocol)
    assert protocol["name"] == name
    assert ADDRESS.fullmatch(protocol["address"])
    fields = dict(protocols.leaves(protocol["fields"]))
    assert set(protocols.FIELDS) <= set(fields)
    painting = dict(protocols.leaves(protocol["painting"]))
    assert {"generation.steps", "generation.scheduler", "dtype", "images", "seeds"} <= set(painting)
    assert any(field != "unknown" for field in fields.values())
    for key, field in {**fields, **painting}.items():
        if field == "unknown":
            continue
        assert set(field) <= {"value", "source", "note", "ours"}, key
        assert field["value"] not in (None, ""), key
        assert ADDRESS.fullmatch(field["source"]), key


@pytest.mark.parametrize("name", NAMES)
def test_metrics_follow_the_fields(name):
    """What is measured is what the fields say: no FID where the target is the baseline."""
    loaded = OmegaConf.to_container(protocols.load(name))
    fields, metrics = dict(protocols.leaves(loaded["protocol"]["fields"])), loaded["metrics"]
    known = OmegaConf.load(ROOT / "configs" / "metrics" / "standard.yaml")
    assert set(metrics) <= set(known)
    assert set(metrics.get("painted", {})) <= set(known.painted)

    def value(key):
        field = fields[key]
        return field if field == "unknown" else field["value"]

    target = value("fid_target")
    assert ("fid_to_baseline" in metrics["names"]) == (target == "baseline")
    assert ("fid_pytorch_fid" in metrics["names"]) == (
        target == "reference" and value("fid_tool") == "pytorch-fid"
    )
    assert "fid" not in metrics["names"]
    for metric in ("psnr", "ssim", "lpips"):
        assert (metric in metrics["names"]) == (value(metric) not in ("none", "unknown"))
    assert ("clip_score" in metrics["names"]) == (value("clip_model") not in ("none", "unknown"))
    jpeg = value("file_format").startswith("jpeg")
    assert (metrics.get("painted", {}).get("format") == "jpeg") == jpeg


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("benchmark", ["toy", "sd15_imagenet", "coco2017_5k"])
def test_composes_with_every_benchmark(run_of, name, benchmark):
    plain, cfg = run_of(f"benchmark={benchmark}"), run_of(f"benchmark={benchmark}",
                                                          f"protocol={name}")  # fmt: skip
    wanted = protocols.load(name)
    assert cfg.protocol == wanted.protocol
    merged = OmegaConf.merge(plain.metrics, wanted.metrics)
    assert OmegaConf.to_container(cfg.metrics) == OmegaConf.to_container(merged)
    for section in ("generation", "benchmark", "seed", "dtype"):
        assert cfg[section] == plain[section]
    # Prompts belong to the benchmark. (coco2017_5k's path is an interpolation of `data`.)
    assert OmegaConf.to_container(cfg.prompts) == OmegaConf.to_container(plain.prompts)


def test_its_own_benchmark_departs_in_what_it_cannot_have(run_of):
    cfg = run_of("benchmark=sd15_imagenet", "protocol=tomesd")
    found = protocols.departures(cfg)
    assert len(found) == 1
    assert found[0].startswith("prompts.class_names: here torchvision's list, tomesd has the auth")
    unknown = protocols.unknown_fields(cfg)
    assert {"file_format", "reference_crop", "seeds"} <= set(unknown)
    assert "fid_tool" not in unknown
    assert protocols.departures(run_of("benchmark=sd15_imagenet", "protocol=paper")) == []


def test_every_departure_is_one_sentence_with_both_values_and_the_source(run_of):
    cfg = run_of(
        "benchmark=sd15_imagenet", "protocol=tomesd", "generation.steps=4",
        "generation.scheduler=ddim", "generation.width=256", "dtype=float32", "prompts.limit=100",
        "prompts.template='A photo of a {class}.'", "model=toy", "metrics.names=[fid,kid]",
        "metrics.reference_size.crop=none",
    )  # fmt: skip
    found = protocols.departures(cfg)
    expected = {
        "generation.steps": ("here 4,", "tomesd has 50 (https://"),
        "generation.scheduler": ("here ddim,", "has plms"),
        "generation.width": ("here 256,", "has 512"),
        "dtype": ("here float32,", "has float16"),
        "images": ("here 100,", "has 2000"),
        "prompts.template": ("here A photo of a {class}.,", "high quality"),
        "model.name": ("here toy,", "has sd15"),
        "metrics.names": ("here [fid, kid],", "[fid_pytorch_fid]"),
    }
    for key, parts in expected.items():
        sentences = about(found, key)
        assert len(sentences) == 1, found
        assert all(part in sentences[0] for part in parts), sentences
    assert {sentence.split(": ")[0] for sentence in found} == {*expected, "prompts.class_names"}


def test_other_works(run_of):
    toy = protocols.departures(run_of("benchmark=toy", "protocol=cache_dit"))
    assert about(toy, "benchmark") == [
        "benchmark: here toy, the prompts of cache_dit are of no benchmark here"
    ]
    assert "wrap" in about(toy, "psnr")[0]
    coco = run_of("benchmark=coco2017_5k", "protocol=sada", "prompts.path=x.json")
    found = protocols.departures(coco)
    assert not about(found, "benchmark")
    assert not about(found, "images")  # 5,000, as SADA
    assert "one of an image's captions, chosen by seed" in about(found, "prompts.captions")[0]
    assert "one an image, sada has 42" in about(found, "seeds")[0]
    assert about(protocols.departures(coco, images=64), "images")
    assert coco.metrics.painted.format == "jpeg"
    assert coco.metrics.painted.quality == 75


def test_without_a_protocol_there_is_nothing_to_depart_from(run_of):
    cfg = run_of("benchmark=toy")
    assert protocols.departures(cfg) == []
    assert protocols.unknown_fields(cfg) == []


def test_images_from_elsewhere_are_compared_in_their_metrics_alone():
    cfg = OmegaConf.merge(protocols.load("sada"), {"metrics": {"lpips_net": "vgg"}})
    found = protocols.departures(cfg, images=12)
    assert {sentence.split(": ")[0] for sentence in found} == {"images", "metrics.lpips_net"}
    unknown = protocols.unknown_fields(cfg)
    assert "fid_tool" in unknown
    assert not any(key.startswith("generation.") for key in unknown)
