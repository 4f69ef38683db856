"""Copied, pickled and shared pipelines know themselves, or say what to do."""

import copy
import io
import pickle

import cloudpickle
import pytest
import torch
from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionPipeline

from catome import Interval, Ratio, Threshold, TokenMerging, apply, get_handle, remove

ADAPTIVE = TokenMerging(Threshold(0.5), Interval(2))


def saved(pipe):
    file = io.BytesIO()
    torch.save(pipe, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda pipe: pickle.loads(pickle.dumps(pipe)),
    "pickle, oldest protocol": lambda pipe: pickle.loads(pickle.dumps(pipe, protocol=2)),
    "cloudpickle": lambda pipe: pickle.loads(cloudpickle.dumps(pipe)),
    "torch.save": saved,
    "in a list": lambda pipe: pickle.loads(pickle.dumps([pipe.unet, pipe]))[1],
    "copied twice": lambda pipe: copy.deepcopy(pickle.loads(pickle.dumps(pipe))),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("called", [False, True])
def test_a_copied_pipeline_paints_the_same(make_pipeline, paint, way, called):
    """Two images under guidance: with a row an image instead of two they differ."""
    pipe = make_pipeline()
    apply(pipe, ADAPTIVE, record=True)
    if called:
        paint(pipe, images=2, seed=3)
    twin = COPIES[way](pipe)
    expected = paint(pipe, images=2)
    assert torch.equal(paint(twin, images=2), expected)
    ours, theirs = get_handle(pipe), get_handle(twin)
    assert ours is not theirs
    assert theirs._state.pipeline() is twin
    assert theirs._state.copies == 2
    assert ours.clock.generation == theirs.clock.generation
    paint(twin, images=1, steps=2)
    assert ours.clock.generation == theirs.clock.generation - 1
    remove(twin)
    remove(pipe)
    assert torch.equal(paint(twin), paint(pipe))
    untouched = make_pipeline()
    paint(untouched)
    assert set(vars(twin)) == set(vars(pipe)) == set(vars(untouched))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda unet: pickle.loads(pickle.dumps(unet))])
def test_a_unet_copied_without_its_pipeline_says_so(pipe, paint, evaluate, copied):
    apply(pipe, ADAPTIVE)
    paint(pipe)
    twin = copied(pipe.unet)
    with pytest.raises(ValueError, match=r"^copies=None: .* copied without its StableDiffusionPip"):
        evaluate(twin)
    apply(twin, ADAPTIVE, copies=2)
    assert evaluate(twin).isfinite().all()
    apply(pipe, TokenMerging(Ratio(0.5)))  # has to know nothing
    assert evaluate(copied(pipe.unet)).isfinite().all()


def test_a_pipeline_made_of_anothers_parts(pipe, paint):
    """The U-Net is patched for the other: it says so, rather than reading the other's guidance."""
    apply(pipe, ADAPTIVE)
    other = StableDiffusionImg2ImgPipeline(**pipe.components, requires_safety_checker=False)
    other.set_progress_bar_config(disable=True)
    image = torch.rand(1, 3, 16, 16)
    with pytest.raises(ValueError, match=r"^copies=None: StableDiffusionPipeline tells its guid"):
        paint(other, image=image)
    apply(other, ADAPTIVE)
    assert paint(other, image=image).isfinite().all()
    assert get_handle(pipe) is get_handle(other)


def test_a_pipeline_that_is_gone(make_pipeline, paint):
    pipe = make_pipeline()
    apply(pipe, ADAPTIVE)
    parts = pipe.components
    del pipe
    other = StableDiffusionPipeline(**parts, requires_safety_checker=False)
    other.set_progress_bar_config(disable=True)
    with pytest.raises(ValueError, match=r"^copies=None: .* outlived it; apply to the pipeline"):
        paint(other)
    apply(other, ADAPTIVE)
    assert paint(other).isfinite().all()
