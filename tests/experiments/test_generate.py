"""Painting goes on past what fails: memory, exceptions, values that are not finite, Ctrl-C."""

import os
import signal

import numpy as np
import pytest
import torch
from commands import ROOT
from hydra import compose, initialize_config_dir

from experiments.accelerators.build import build_method
from experiments.common.errors import RowFailed
from experiments.models import pipelines
from experiments.painting import generate, pipeline_call
from experiments.painting.store import ImageStore, Prompt, read_record


@pytest.fixture
def row(tmp_path):
    """A row of six prompts, two steps, batch 4; `paint` paints it."""
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("config", ["method=ca_tome", "generation.steps=2", "device=cpu"])
    return Row(cfg, tmp_path)


class Row:
    def __init__(self, cfg, folder):
        self.cfg, self.method = cfg, build_method(cfg)
        self.pipe = pipelines.load(cfg)
        self.prompts = [Prompt(f"a red ring {i}", i) for i in range(6)]
        self.store = ImageStore(folder, {"a": "painter"})
        self.calls = []

    def paint(self):
        return generate.paint(self.cfg, self.pipe, self.method, self.store, self.prompts, "row")

    def painted(self):
        return [p.seed for p in self.prompts if self.store.has(p)]


@pytest.fixture
def pipeline_that(monkeypatch):
    """Puts something between the stage and the pipeline: it is told the prompts of each call."""
    original = pipeline_call.generate

    def install(before=lambda prompts: None, after=lambda prompts, images: images):
        def call(pipe, cfg, prompts):
            before(prompts)
            return after(prompts, original(pipe, cfg, prompts))

        monkeypatch.setattr(pipeline_call, "generate", call)

    return install


def test_the_batch_is_halved_where_memory_does_not_suffice(row, pipeline_that):
    sizes = []

    def small(prompts):
        sizes.append(len(prompts))
        if len(prompts) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")

    pipeline_that(before=small)
    assert row.paint() == 6
    assert sizes == [4, 2, 2, 2]
    assert row.painted() == list(range(6))
    records = [read_record(row.store.path(p)) for p in row.prompts]
    assert {r["batch_size"] for r in records} == {2}
    # What was recorded of the failed attempt counts for no image.
    assert all(0 <= r["merged_share"] <= 1 for r in records)


def test_a_single_image_that_does_not_fit_ends_the_row(row, pipeline_that):
    def never(prompts):
        raise torch.OutOfMemoryError("CUDA out of memory")

    pipeline_that(before=never)
    with pytest.raises(torch.OutOfMemoryError):
        row.paint()


def test_an_image_that_fails_twice_is_listed_and_the_others_are_painted(row, pipeline_that):
    def refuse(prompts):
        if any(p.seed == 1 for p in prompts):
            raise RuntimeError("no such kernel\nmore lines")

    pipeline_that(before=refuse)
    with pytest.raises(RowFailed) as caught:
        row.paint()
    assert str(caught.value) == (
        "1 of 6 images could not be painted, the first “a red ring 1” (seed 1): "
        "RuntimeError: no such kernel"
    )
    assert row.painted() == [0, 2, 3, 4, 5]


def test_a_failure_that_passes_is_no_failure(row, pipeline_that):
    seen = []

    def once(prompts):
        seen.append(len(prompts))
        if len(seen) == 1:
            raise RuntimeError("a hiccup")

    pipeline_that(before=once)
    assert row.paint() == 6
    assert seen == [4] * 6


def test_images_that_are_not_finite_are_not_kept(row, pipeline_that):
    def lose(prompts, images):
        return [None if p.seed in (2, 5) else i for p, i in zip(prompts, images, strict=True)]

    pipeline_that(after=lose)
    with pytest.raises(RowFailed, match=r"2 of 6 images .*\(seed 2\): its values are not finite"):
        row.paint()
    assert row.painted() == [0, 1, 3, 4]


def test_nan_is_noticed_behind_the_decoder(row, monkeypatch):
    decode = row.pipe.vae.decode

    def broken(latents, **options):
        (image,) = decode(latents, **options)
        image[0] = torch.nan
        return (image,)

    monkeypatch.setattr(row.pipe.vae, "decode", broken)
    with np.errstate(invalid="raise"):
        lost, kept = pipeline_call.generate(row.pipe, row.cfg, row.prompts[:2])
    assert lost is None
    assert kept.size == (128, 128)


@pytest.fixture
def in_the_foreground():
    """Ctrl-C as a terminal's process has it; in the background of a script it may be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("in_the_foreground")
def test_ctrl_c_waits_for_the_batch_in_flight(row, pipeline_that):
    before = signal.getsignal(signal.SIGINT)

    def interrupt(prompts):
        os.kill(os.getpid(), signal.SIGINT)

    pipeline_that(before=interrupt)
    with pytest.raises(KeyboardInterrupt):
        row.paint()
    assert row.painted() == [0, 1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("in_the_foreground")
def test_a_second_ctrl_c_stops_at_once(row, pipeline_that):
    def interrupt(prompts):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    pipeline_that(before=interrupt)
    with pytest.raises(KeyboardInterrupt):
        row.paint()
    assert row.painted() == []
