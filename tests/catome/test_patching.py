"""Putting token merging on models and taking it off again."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from diffusers import StableDiffusionPipeline, UNetMotionModel

import catome
from catome import (
    Checkpoints,
    Interval,
    Ratio,
    Record,
    Recorder,
    Threshold,
    TokenMerging,
    apply,
    get_handle,
    remove,
)

HALF = TokenMerging(Ratio(0.5))
ADAPTIVE = TokenMerging(Threshold(0.5), Interval(2))
TOP_BLOCKS = [
    "down_blocks.0.attentions.0.transformer_blocks.0",
    "up_blocks.1.attentions.0.transformer_blocks.0",
    "up_blocks.1.attentions.1.transformer_blocks.0",
]


def traces(model):
    """Every hook and every attribute of all modules of a model."""
    found = {}
    for name, module in model.named_modules():
        hooks = [len(v) for k, v in vars(module).items() if "hook" in k and hasattr(v, "__len__")]
        found[name] = (sorted(vars(module)), sum(hooks), type(module), type(module).forward)
    return found


def test_removing_restores_the_model_bit_for_bit(pipe, paint):
    before, untouched = traces(pipe.unet), paint(pipe)
    attributes = sorted(vars(pipe)), sorted(vars(pipe.scheduler))
    handle = apply(pipe, ADAPTIVE, record=True)
    assert handle.blocks == TOP_BLOCKS
    assert list(pipe.unet.state_dict()) == list(copy.deepcopy(pipe.unet).state_dict())
    merged = paint(pipe)
    assert not torch.equal(merged, untouched)
    remove(pipe)
    assert traces(pipe.unet) == before
    assert (sorted(vars(pipe)), sorted(vars(pipe.scheduler))) == attributes
    assert torch.equal(paint(pipe), untouched)
    remove(pipe)  # harmless
    assert get_handle(pipe) is None


def test_a_context_manager_removes(unet, evaluate):
    before, untouched = traces(unet), evaluate(unet)

    def use_and_fail():
        with apply(unet, HALF) as handle:
            assert get_handle(unet) is handle
            assert not torch.equal(evaluate(unet), untouched)
            raise KeyError

    with pytest.raises(KeyError):
        use_and_fail()
    assert traces(unet) == before
    assert torch.equal(evaluate(unet), untouched)


def test_applying_again_replaces(make_unet, evaluate):
    unet = make_unet()
    apply(unet, HALF)
    once = evaluate(unet)
    first = apply(unet, TokenMerging(Ratio(0.25)))
    quarter = evaluate(unet)
    second = apply(unet, HALF)
    assert torch.equal(evaluate(unet), once)
    assert not torch.equal(quarter, once)
    first.remove()  # the replaced handle has nothing left to remove
    assert get_handle(unet) is second
    second.new_generation()
    assert torch.equal(evaluate(unet), once)
    second.remove()
    second.remove()
    assert traces(unet) == traces(make_unet())


def test_a_refused_method_leaves_the_old_one(unet):
    handle = apply(unet, HALF)
    with pytest.raises(ValueError, match="copies=0"):
        apply(unet, HALF, copies=0)
    assert get_handle(unet) is handle


@pytest.mark.parametrize(
    "select", [Ratio(0), Threshold(1), Threshold(1.5), Ratio(0.001), Threshold(0.999999)]
)
def test_merging_nothing_changes_nothing(unet, evaluate, select, monkeypatch):
    untouched = evaluate(unet)
    if select.merges_nothing:
        monkeypatch.setattr("catome.hooks.match_images", None)  # not even called
    handle = apply(unet, TokenMerging(select), record=True)
    assert torch.equal(evaluate(unet), untouched)
    assert {r.tokens_out for r in handle.records} == {(64, 64)}
    assert {r.matched for r in handle.records} == {not select.merges_nothing}


def test_a_grid_smaller_than_a_cell_merges_nothing(unet, evaluate):
    untouched = evaluate(unet, size=(2, 6))
    handle = apply(unet, TokenMerging(Ratio(0.5), stride=3), record=True)
    assert torch.equal(evaluate(unet, size=(2, 6)), untouched)
    assert {(r.sources, r.tokens_out) for r in handle.records} == {(0, (12, 12))}


def test_a_grid_the_stride_does_not_divide(unet, evaluate):
    handle = apply(unet, TokenMerging(Ratio(0.9), stride=3), record=True)
    assert evaluate(unet, size=(7, 10)).shape == (2, 4, 7, 10)
    assert {(r.grid, r.sources, r.tokens_out) for r in handle.records} == {((7, 10), 64, (7, 7))}


def test_levels(make_unet, evaluate):
    unet = make_unet()
    assert apply(unet, TokenMerging(Ratio(0.5), max_downsample=1)).blocks == TOP_BLOCKS
    names = apply(unet, TokenMerging(Ratio(0.5), max_downsample=2)).blocks
    assert set(names) == {*TOP_BLOCKS, "mid_block.attentions.0.transformer_blocks.0"}
    handle = apply(unet, TokenMerging(Ratio(0.5), max_downsample=2), record=True)
    evaluate(unet, size=(10, 6))
    assert {r.grid for r in handle.records} == {(10, 6), (5, 3)}


@pytest.mark.parametrize("target", ["unet", "pipe"])
def test_no_block_to_merge_is_an_error_that_names_the_levels(make_unet, make_pipeline, target):
    """SDXL's shape: nothing at the latent's own resolution."""
    unet = make_unet(
        block_out_channels=(8, 16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    )
    model = make_pipeline(unet=unet) if target == "pipe" else unet
    before = traces(unet)
    with pytest.raises(ValueError, match=r"^max_downsample=1: no block would merge; .* 2, 4$"):
        apply(model, HALF)
    assert traces(unet) == before
    names = apply(model, TokenMerging(Ratio(0.5), max_downsample=2)).blocks
    assert {n.split(".attentions")[0] for n in names} == {"down_blocks.1", "up_blocks.1"}


def test_blocks_outside_a_2d_transformer_are_left_alone():
    torch.manual_seed(0)
    unet = UNetMotionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        down_block_types=("CrossAttnDownBlockMotion", "DownBlockMotion"),
        up_block_types=("UpBlockMotion", "CrossAttnUpBlockMotion"),
        layers_per_block=1,
        cross_attention_dim=8,
        num_attention_heads=2,
        motion_num_attention_heads=2,
        norm_num_groups=4,
    ).eval()
    frames = torch.randn(2, 4, 3, 8, 8)  # (batch, channels, frames, height, width)
    with torch.no_grad():
        handle = apply(unet, HALF, record=True)
        assert unet(frames, 1, torch.zeros(6, 5, 8)).sample.shape == frames.shape
    assert handle.blocks == TOP_BLOCKS
    assert {r.tokens_out for r in handle.records} == {(32,) * 6}


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (object(), {}, "model='object': must be a Diffusers pipeline with a unet, or a U-Net"),
        (torch.nn.Linear(2, 2), {}, "max_downsample=1: no block would merge; .*: none"),
        (None, {"copies": 0}, "copies=0: must be"),
        (None, {"copies": 1.5}, "copies=1.5: must be"),
        (None, {"record": "yes"}, "record='yes': must be a Recorder or bool"),
        (None, {"method": Ratio(0.5)}, r"method=Ratio\(ratio=0.5\): must be a TokenMerging"),
    ],
)
def test_bad_arguments(unet, model, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        apply(unet if model is None else model, **{"method": HALF, **options})


def test_rows_that_are_no_multiple_of_copies(unet, evaluate):
    apply(unet, ADAPTIVE, copies=2)
    with pytest.raises(ValueError, match=r"^copies=2: the U-Net was given 3 rows"):
        evaluate(unet, rows=3)


def test_a_pipeline_that_does_not_tell_its_guidance(unet):
    class Plain:
        def __init__(self, unet):
            self.unet = unet

    with pytest.raises(ValueError, match=r"^copies=None: Plain does not tell whether it guides"):
        apply(Plain(unet), ADAPTIVE)
    assert apply(Plain(unet), ADAPTIVE, copies=2).blocks == TOP_BLOCKS
    assert apply(Plain(unet), HALF).blocks == TOP_BLOCKS  # a ratio needs no guidance


@pytest.mark.parametrize("way", ["wrapper", "in place", "blocks"])
def test_a_compiled_unet_is_refused(pipe, way):
    """Hooks that come after compilation would be ignored in silence."""
    if way == "wrapper":
        pipe.unet = torch.compile(pipe.unet)
    elif way == "in place":
        pipe.unet.compile()
    else:
        pipe.unet.compile_repeated_blocks()
    with pytest.raises(ValueError, match=r"^unet is compiled: apply"):
        apply(pipe, HALF)


def test_removing_from_a_unet_compiled_later(pipe, make_pipeline):
    handle, inner = apply(pipe, HALF), pipe.unet
    pipe.unet = torch.compile(pipe.unet)
    assert get_handle(pipe) is handle
    remove(pipe)
    other = make_pipeline().unet
    torch.compile(other)  # leaves an attribute of its own
    assert traces(inner) == traces(other)


def test_a_model_with_a_window(unet, evaluate):
    """No pair crosses the border of a tile, and some would without a window."""

    def crossing(window):
        recorder = Recorder(pairs=True)
        with apply(unet, TokenMerging(Ratio(0.75), window=window), record=recorder):
            evaluate(unet)
        token = torch.arange(64)
        tile = token // 8 // 4 * 2 + token % 8 // 4
        return sum((tile[r.pairs] != tile).sum().item() for r in recorder.records)

    assert crossing(None) > 0
    assert crossing(4) == 0


def test_a_deep_copied_pipeline_has_its_own_state(make_pipeline, paint):
    pipe = make_pipeline()
    handle = apply(pipe, ADAPTIVE, record=True)
    first = paint(pipe)
    twin = copy.deepcopy(pipe)
    theirs = get_handle(twin)
    assert theirs is not handle
    assert get_handle(pipe) is handle
    records, held = len(handle.records), dict(handle._blocks[0].held)
    assert torch.equal(paint(twin, steps=2, images=2)[:1], paint(twin, steps=2, images=2)[:1])
    assert len(handle.records) == records
    assert handle._blocks[0].held == held
    assert (handle.clock.generation, theirs.clock.generation) == (0, 2)
    assert len(theirs.records) == records + 2 * 3 * 3
    # Its clock reads its own scheduler, its guidance its own call.
    assert theirs._state.pipeline() is twin
    assert theirs._state.copies == 2
    remove(twin)
    assert get_handle(pipe) is handle
    assert torch.equal(paint(pipe), first)
    untouched = make_pipeline()
    assert traces(twin.unet) == traces(untouched.unet)
    assert torch.equal(paint(twin), paint(untouched))


def test_a_copy_taken_midway_goes_on_by_itself(unet, evaluate):
    apply(unet, TokenMerging(Threshold(0.5), Checkpoints([0])))
    evaluate(unet)
    twin = copy.deepcopy(unet)
    ours = [evaluate(unet, seed=s, timestep=5 - s) for s in (1, 2)]
    theirs = [evaluate(twin, seed=s, timestep=5 - s) for s in (1, 2)]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_copied_unet_leaves_the_pipeline_behind(pipe, paint, evaluate):
    apply(pipe, HALF)
    paint(pipe)
    twin = copy.deepcopy(pipe.unet)
    assert get_handle(twin)._state.pipeline() is None
    evaluate(twin, timestep=3)
    evaluate(twin, timestep=9)
    assert (get_handle(twin).clock.generation, get_handle(pipe).clock.generation) == (1, 0)


def test_the_patch_keeps_no_pipeline_alive(make_pipeline):
    pipe = make_pipeline()
    unet = pipe.unet
    handle, gone = apply(pipe, HALF), weakref.ref(pipe)
    del pipe
    gc.collect()
    assert gone() is None
    assert get_handle(unet) is handle


def classes(unet):
    return [type(module) for module in unet.modules()]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda unet: pickle.loads(pickle.dumps(unet))])
def test_classes_are_as_before_once_removed(unet, copied):
    """Merged modules have a class of their own meanwhile, see `OwnClass`; so do those of copies."""
    before = classes(unet)
    apply(unet, TokenMerging(Ratio(0.5), merge=("attn1", "attn2", "ff")))
    own = classes(unet)
    pairs = zip(own, before, strict=True)
    assert all(issubclass(a, b) and a.__qualname__ == b.__qualname__ for a, b in pairs)
    assert own != before
    twin = copied(unet)
    assert classes(twin) == own
    remove(unet)
    assert (classes(unet), classes(twin)) == (before, own)
    remove(twin)
    assert classes(twin) == before


def test_merging_keeps_no_weights_alive(make_unet):
    unet = make_unet()
    handle = apply(unet, TokenMerging(Ratio(0.5), merge=("attn1", "attn2", "ff")))
    weights = [weakref.ref(parameter) for parameter in unet.parameters()]
    gc.disable()
    try:
        del unet
        assert not any(weight() is not None for weight in weights)
    finally:
        gc.enable()
    handle.remove()


def test_saving_and_loading(pipe, make_pipeline, paint, evaluate, tmp_path):
    untouched, keys = paint(pipe), list(pipe.unet.state_dict())
    apply(pipe, HALF)
    assert list(pipe.unet.state_dict()) == keys
    paint(pipe)
    pipe.save_pretrained(tmp_path)
    loaded = StableDiffusionPipeline.from_pretrained(tmp_path, text_encoder=None, tokenizer=None)
    loaded.set_progress_bar_config(disable=True)
    assert get_handle(loaded) is None
    assert torch.equal(paint(loaded), untouched)


def test_pickling_a_patched_unet(unet, evaluate):
    apply(unet, HALF)
    twin = pickle.loads(pickle.dumps(unet))
    assert torch.equal(evaluate(twin), evaluate(unet))
    remove(twin)
    assert get_handle(unet) is not None
    assert get_handle(twin) is None


def test_another_dtype_re_uses_the_match(unet, evaluate):
    handle = apply(unet, TokenMerging(Ratio(0.5), Checkpoints([0])), record=True)
    evaluate(unet)
    for dtype in (torch.bfloat16, torch.float64):
        assert evaluate(unet.to(dtype)).dtype == dtype
    assert [r.matched for r in handle.records[::3]] == [True, False, False]


def test_attention_backends_and_processors_are_kept(unet, evaluate):
    processors = unet.attn_processors
    apply(unet, HALF)
    assert unet.attn_processors == processors


@pytest.mark.parametrize("parts", [("attn1",), ("attn2",), ("ff",), ("attn1", "attn2", "ff")])
def test_only_the_modules_asked_for_see_fewer_tokens(unet, evaluate, parts):
    apply(unet, TokenMerging(Ratio(0.5), merge=parts))
    block = unet.down_blocks[0].attentions[0].transformer_blocks[0]
    seen = {}
    for name in ("norm1", "attn1", "norm2", "attn2", "norm3", "ff"):
        module = getattr(block, name)
        module = module.to_q if "attn" in name else module.net if name == "ff" else module
        module = module[0] if name == "ff" else module
        module.register_forward_pre_hook(
            lambda _, args, name=name: seen.update({name: args[0].shape[1]})
        )
    evaluate(unet)
    assert {n for n, tokens in seen.items() if tokens == 32} == set(parts)
    assert {n for n, tokens in seen.items() if tokens == 64} == set(seen) - set(parts)


def test_a_self_attention_mask_is_refused(unet):
    apply(unet, HALF)
    with pytest.raises(ValueError, match=r"^attention_mask: must be None"):
        unet(torch.zeros(1, 4, 8, 8), 1, torch.zeros(1, 5, 8), attention_mask=torch.ones(1, 64))


def test_no_global_generator_is_read_or_advanced(make_unet, evaluate):
    outputs = []
    for seed in (0, 1):
        unet = make_unet()
        apply(unet, HALF)
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        outputs.append(evaluate(unet))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*outputs)
    unet = make_unet()
    apply(unet, TokenMerging(Ratio(0.5), seed=1))
    assert not torch.equal(evaluate(unet), outputs[0])


def test_records(unet, evaluate):
    told = []
    recorder = Recorder(similarities=True, pairs=True, on_record=told.append)
    handle = apply(unet, TokenMerging(Ratio(0.25), Interval(2)), record=recorder)
    evaluate(unet, rows=3)
    evaluate(unet, rows=3, timestep=5)
    assert [r.block for r in handle.records] == TOP_BLOCKS * 2
    assert told == handle.records
    first, again = handle.records[0], handle.records[3]
    assert isinstance(first, Record)
    assert first.to_dict() == {
        "generation": 0,
        "step": 0,
        "block": TOP_BLOCKS[0],
        "matched": True,
        "grid": [8, 8],
        "sources": 48,
        "tokens_in": 64,
        "tokens_out": [48, 48, 48],
    }
    assert first.similarities.shape == (3, 48)
    assert first.similarities.dtype == torch.float32
    assert first.pairs.shape == (3, 64)
    assert (first.pairs != torch.arange(64)).sum(1).tolist() == [16, 16, 16]
    assert (again.step, again.matched, again.tokens_out) == (1, False, (48, 48, 48))
    assert again.similarities is None
    assert again.pairs is None
    assert recorder.share_merged() == 1 / 3
    assert recorder.share_merged(of="tokens") == 1 / 4
    with pytest.raises(ValueError, match="of='rows'"):
        recorder.share_merged(of="rows")
    recorder.clear()
    assert handle.records == []
    assert recorder.share_merged() == 0


def test_recording_changes_nothing_and_is_off_by_default(make_unet, evaluate):
    outputs = []
    for record in (None, True, Recorder(similarities=True, pairs=True)):
        unet = make_unet()
        handle = apply(unet, ADAPTIVE, record=record)
        outputs.append(evaluate(unet))
        assert bool(handle.records) == (record is not None)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


def test_a_re_used_match_is_the_match_held(unet, evaluate):
    """Between checkpoints the pairs stay, the tokens are the present ones."""
    recorder = Recorder(pairs=True)
    method = TokenMerging(Threshold(0.5), Checkpoints([0]), count="batch")
    apply(unet, method, record=recorder)
    evaluate(unet, seed=0)
    seen = []
    block = unet.down_blocks[0].attentions[0].transformer_blocks[0]
    block.norm1.register_forward_hook(lambda _, args, out: seen.append(out))
    block.attn1.to_q.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    evaluate(unet, seed=1)
    tokens, short = seen
    pairs = recorder.records[0].pairs
    for row in range(2):
        goals = pairs[row].unique().tolist()
        means = torch.stack([tokens[row, pairs[row] == g].mean(0) for g in goals])
        distance = torch.cdist(means, short[row]).amin(1)
        assert 16 < len(goals) <= short.shape[1] < 64
        assert distance.max() < 1e-4


def test_importing_needs_no_diffusers():
    import subprocess
    import sys

    code = "import sys, catome; assert 'diffusers' not in sys.modules, 'imported'"
    root = str(next(iter(catome.__path__))).removesuffix("/catome")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


@pytest.mark.parametrize("method", [TokenMerging(Ratio(0.5), Interval(2)), ADAPTIVE])
def test_a_re_using_evaluation_reads_no_value_of_a_tensor(unet, method):
    """On a GPU every such read would wait for it. Tensors without values show each one."""
    handle = apply(unet, method, record=True)
    sample, text = torch.randn(2, 4, 8, 8), torch.randn(2, 5, 8)
    unet(sample, 10, text)
    output = unet.to("meta")(sample.to("meta"), 9, text.to("meta")).sample
    assert output.shape == sample.shape
    assert [r.matched for r in handle.records] == [True] * 3 + [False] * 3
    assert all(min(r.tokens_out) < r.tokens_in for r in handle.records)
