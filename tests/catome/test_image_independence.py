"""Images of one batch that keep different numbers of tokens do not influence each other."""

import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

from catome import Interval, Ratio, Recorder, Threshold, TokenMerging, apply

METHOD = TokenMerging(Threshold(0.55), Interval(2))


def inputs(images, guided=True, seed=0):
    """Noise at different scales, so that images differ in similarity: uncond rows, then cond."""
    generator = torch.Generator().manual_seed(seed)
    sample = torch.randn(images, 4, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(sample[..., ::4, ::4], size=(8, 8), mode="bilinear")
    share = torch.linspace(0, 1, images).view(-1, 1, 1, 1)
    sample = share * smooth + (1 - share) * sample
    copies = 2 if guided else 1
    text = torch.randn(copies, images, 5, 8, generator=generator)
    return sample.repeat(copies, 1, 1, 1), text.flatten(0, 1)


@pytest.mark.parametrize("processor", [AttnProcessor2_0, AttnProcessor])
@pytest.mark.parametrize("parts", [("attn1",), ("attn1", "attn2", "ff")])
@pytest.mark.parametrize("copies", [1, 2])
def test_a_batch_equals_its_images_one_by_one(make_unet, processor, parts, copies):
    method = TokenMerging(Threshold(0.55), Interval(2), merge=parts)
    sample, text = inputs(3, guided=copies == 2)

    def run(rows):
        unet = make_unet()
        unet.set_attn_processor(processor())
        handle = apply(unet, method, copies=copies, record=True)
        outputs = [unet(sample[rows], t, text[rows]).sample for t in (900, 600, 300)]
        return outputs, handle.records

    together, records = run(torch.arange(3 * copies))
    # Numbers differ between images, not within one.
    assert any(len(set(r.tokens_out)) > 1 for r in records)
    assert all(r.tokens_out[:3] * copies == r.tokens_out for r in records)
    for image in range(3):
        rows = torch.arange(image, 3 * copies, 3)
        alone, alone_records = run(rows)
        for a, b in zip(together, alone, strict=True):
            assert (a[rows] - b).abs().max() < 2e-5
        # In a batch of the same size the other images make no difference at all.
        for a, b in zip(together, run(rows.repeat_interleave(3))[0], strict=True):
            assert torch.equal(a[rows], b[rows])
        for a, b in zip(records, alone_records, strict=True):
            assert [a.tokens_out[r] for r in rows] == list(b.tokens_out)


def test_a_batch_of_a_pipeline_equals_its_images_one_by_one(make_pipeline, paint):
    pipe = make_pipeline()
    handle = apply(pipe, METHOD, record=True)
    together = paint(pipe, images=3, seed=5)
    assert any(len(set(r.tokens_out)) > 1 for r in handle.records)
    assert all(r.tokens_out[:3] * 2 == r.tokens_out for r in handle.records)
    prompts = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(5))
    for i in range(3):
        alone = pipe(
            prompt_embeds=prompts[i : i + 1],
            negative_prompt_embeds=prompts[3 + i : 4 + i],
            num_inference_steps=4,
            generator=torch.Generator().manual_seed(5 + i),
            output_type="latent",
            height=16,
            width=16,
        ).images
        assert (together[i] - alone[0]).abs().max() < 1e-4 * together.abs().max()


def test_the_count_is_the_larger_of_an_images_halves(make_unet):
    unet = make_unet()
    sample, text = inputs(3)

    def counts(**options):
        recorder = Recorder(similarities=True)
        method = TokenMerging(Threshold(0.55), count=options.pop("count", "image"))
        apply(unet, method, record=recorder, **options)
        unet(sample, 9, text)
        last = recorder.records[-1]  # the first block has not seen the text: its halves are equal
        return [64 - n for n in last.tokens_out], (last.similarities >= 0.55).sum(1).tolist()

    halves, own = counts(copies=2)
    assert halves == [max(own[i], own[i + 3]) for i in range(3)] * 2
    assert halves[:3] != own[:3] or halves[3:] != own[3:]
    assert counts(copies=1)[0] == own
    assert counts(count="batch")[0] == [max(own)] * 6
    assert len(set(halves)) > 1


def test_the_larger_count_takes_the_next_most_similar(make_unet):
    """A half that merges more than its own count takes its next most similar sources."""
    unet = make_unet()
    sample, text = inputs(2)
    recorder = Recorder(similarities=True, pairs=True)
    method = TokenMerging(Threshold(0.55), count="batch", destinations="corner")
    apply(unet, method, record=recorder)
    unet(sample, 9, text)
    record = recorder.records[0]
    count = 64 - record.tokens_out[0]
    is_source = torch.ones(8, 8, dtype=torch.bool)
    is_source[::2, ::2] = False
    merged = (record.pairs != torch.arange(64))[:, is_source.flatten()]
    own = (record.similarities >= 0.55).sum(1)
    assert own.min() < own.max() == count
    for row in range(4):
        top = record.similarities[row].topk(count).indices.sort().values
        assert merged[row].nonzero()[:, 0].tolist() == top.tolist()


def test_a_ratio_is_dense(make_unet):
    unet = make_unet()
    handle = apply(unet, TokenMerging(Ratio(0.5)), copies=2)
    sample, text = inputs(2)
    unet(sample, 9, text)
    assert all(len(block.maps) == 1 for block in handle._blocks)
