"""Train the toy world: scorer, autoencoder, U-Net, judge.

    python -m experiments.toy.train                       # everything; hours on 2 cores
    python -m experiments.toy.train stages=[unet]         # one stage; a second call resumes
    python -m experiments.toy.train work=<folder> out=<folder>

Every stage is a function of the seed, checkpoints every two minutes under `work` and goes on
from there. `export` writes fp16 safetensors to `out`: `pipeline/` for
`StableDiffusionPipeline.from_pretrained`, `scorer/` for `CLIPModel.from_pretrained`, `judge/`.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, StableDiffusionPipeline
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.attention_processor import Attention, AttnProcessor2_0
from omegaconf import OmegaConf
from safetensors.torch import save_file
from torch import nn

from experiments.toy import networks, scenes

DEFAULTS = {
    "work": "results/runs/toy_training",
    "out": "experiments/toy/weights",
    "seed": 0,
    "scenes": 24_000,  # distinct training scenes
    "stages": ["scorer", "vae", "unet", "tune", "judge", "export"],
    "scorer": {"steps": 600, "batch": 56, "lr": 7e-4},
    "vae": {"steps": 1000, "batch": 16, "lr": 2e-3, "crops_until": 800},
    "unet": {"steps": 9400, "batch": 16, "lr": 1e-3, "pooled_until": 8800},
    "tune": {"steps": 1500, "batch": 16, "lr": 5e-4, "pooled_until": 1350},
    "judge": {"steps": 500, "batch": 64, "lr": 2e-3},
}
CHECKPOINT_SECONDS = 120


def batches(count: int, batch: int, seed: int, start: int) -> Iterator[tuple[int, np.ndarray]]:
    """Step numbers from `start` on with the indices of that step, epoch by epoch reshuffled."""
    per_epoch = count // batch
    step = start
    while True:
        epoch, first = divmod(step, per_epoch)
        order = np.random.default_rng([seed, epoch]).permutation(count)
        for i in range(first, per_epoch):
            yield step, order[i * batch : (i + 1) * batch]
            step += 1


def save_atomically(state: dict | torch.Tensor, path: Path) -> None:
    beside = path.with_suffix(".tmp")
    torch.save(state, beside)
    os.replace(beside, path)


def logged_until(step: int, log: Path) -> list[dict]:
    """The log's rows up to a checkpoint; what came after it will be done again."""
    if step == 0 or not log.exists():
        return []
    with log.open(newline="") as file:
        return [row for row in csv.DictReader(file) if int(row["step"]) <= step]


def fit(
    name: str,
    model: nn.Module,
    loss_of: Callable[[int, torch.Tensor], dict[str, torch.Tensor]],
    args,
    count: int,
    ema_decay: float = 0.99,
) -> None:
    """Minimise the sum of `loss_of(step, indices)`; leaves averaged weights in `model`.

    AdamW, linear warm-up then a cosine to zero, gradients clipped to norm 1. Resumes from
    `work/name.pt`; writes `out/logs/name.csv`.
    """
    options = args[name]
    path = Path(args.work) / f"{name}.pt"
    log = Path(args.out) / "logs" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=1e-2, fused=True)
    average = {k: v.detach().clone().float() for k, v in model.state_dict().items()}
    start = 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        average, start = state["average"], state["step"]
    rows = logged_until(start, log)
    model.train()
    saved = logged = time.monotonic()
    sums: dict[str, float] = {}
    since = start
    for step, indices in batches(count, options.batch, args.seed, start):
        if step >= options.steps:
            break
        warm = min(1.0, (step + 1) / 100)
        cosine = 0.5 * (1 + math.cos(math.pi * step / options.steps))
        for group in optimizer.param_groups:
            group["lr"] = options.lr * warm * max(cosine, 0.01)
        torch.manual_seed(args.seed * 1_000_003 + step)
        losses = loss_of(step, torch.from_numpy(indices))
        optimizer.zero_grad()
        sum(losses.values()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        decay = min(ema_decay, (1 + step) / (10 + step))
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                average[key].lerp_(value.detach().float(), 1 - decay)
            else:
                average[key] = value.detach().clone()
        for key, value in losses.items():
            sums[key] = sums.get(key, 0.0) + value.item()
        now, last = time.monotonic(), step + 1 == options.steps
        if now - logged > 20 or last:
            done = step + 1 - since
            row = {"step": step + 1, "samples": (step + 1) * options.batch}
            row |= {k: round(v / done, 5) for k, v in sums.items()}
            row["samples_per_second"] = round(done * options.batch / (now - logged), 1)
            rows.append(row)
            with log.open("w", newline="") as file:
                writer = csv.DictWriter(file, row)
                writer.writeheader()
                writer.writerows(rows)
            print(name, row, flush=True)
            sums, logged, since = {}, now, step + 1
        if now - saved > CHECKPOINT_SECONDS or last:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save_atomically(state | {"average": average, "step": step + 1}, path)
            saved = now
    model.load_state_dict(average)
    model.eval()


def training_images(args) -> tuple[list[scenes.Scene], torch.Tensor]:
    """The training scenes and their pixels, (N, 3, 128, 128) uint8; rendered once, then kept."""
    drawn = scenes.sample(args.scenes, args.seed, held_out=False)
    path = Path(args.work) / f"scenes_{args.scenes}_{args.seed}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".tmp").open("wb") as file:
            np.save(file, np.stack([scenes.render(s) for s in drawn]))
        os.replace(path.with_suffix(".tmp"), path)
    return drawn, torch.from_numpy(np.load(path)).permute(0, 3, 1, 2)


def to_unit(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.float() / 127.5 - 1


def tokens(tokenizer, texts: list[str]) -> torch.Tensor:
    return tokenizer(
        texts, padding="max_length", truncation=True, max_length=networks.MAX_TOKENS,
        return_tensors="pt",
    ).input_ids  # fmt: skip


def train_scorer(args, tokenizer):
    """CLIP's symmetric contrastive loss on pairs of a scene and its caption.

    Each scene of two objects comes with hard negatives, the same words bound otherwise: among
    unlike captions the sets of words suffice, and relations would never be learnt.
    """
    torch.manual_seed(args.seed)
    model = networks.build_scorer(tokenizer)
    drawn, pixels = training_images(args)

    def loss_of(step, indices):
        shown = [drawn[i] for i in indices.tolist()]
        twins = [scenes.rebound(scene, shapes) for scene in shown for shapes in (False, True)]
        twins = [twin for twin in twins if twin]
        ids = tokens(tokenizer, [scenes.caption(scene) for scene in shown + twins])
        rendered = [torch.from_numpy(scenes.render(twin)).permute(2, 0, 1) for twin in twins]
        images = torch.cat([pixels[indices], *(image[None] for image in rendered)])
        images = F.avg_pool2d(to_unit(images), 2)
        images = images + 0.1 * torch.rand(()) * torch.randn_like(images)
        with torch.autocast("cpu", torch.bfloat16):
            out = model(input_ids=ids, pixel_values=images, return_loss=True)
        return {"contrastive": out.loss.float()}

    fit("scorer", model, loss_of, args, len(drawn))
    return model


def pooled_rgb_whitening(pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (3) and ZCA matrix (3, 3) of 4 x 4 average-pooled pixels in [-1, 1]."""
    flat = F.avg_pool2d(to_unit(pixels), 4).permute(1, 0, 2, 3).flatten(1).double()
    mean = flat.mean(1)
    values, vectors = torch.linalg.eigh(torch.cov(flat))
    return mean.float(), (vectors @ torch.diag(values.rsqrt()) @ vectors.T).float()


def train_vae(args):
    """Reconstruction with latents held near whitened, average-pooled RGB.

    Latents that are a picture at a quarter of the size are easy for a small U-Net; the decoder
    learns to sharpen. Most steps see 64 x 64 crops, the last ones whole images.
    """
    torch.manual_seed(args.seed)
    model = networks.build_vae()
    _, pixels = training_images(args)
    mean, whiten = pooled_rgb_whitening(pixels[:2000])

    def loss_of(step, indices):
        images, side = pixels[indices], scenes.SIZE
        if step < args.vae.crops_until:
            # Two crops an image: as many pixels a step as half of the whole images hold.
            side //= 2
            corners = 4 * torch.randint(0, side // 4 + 1, (2, 2))
            images = torch.cat([images[..., y : y + side, x : x + side] for y, x in corners])
        images = to_unit(images)
        target = F.avg_pool2d(images, 4) - mean[:, None, None]
        target = torch.einsum("ij,bjhw->bihw", whiten, target)
        with torch.autocast("cpu", torch.bfloat16):
            latent = model.encode(images).latent_dist
            decoded = model.decode(latent.sample()).sample.float()
        error = decoded - images
        kl = 0.5 * (latent.mean**2 + latent.var - 1 - latent.logvar).float().mean()
        return {
            "l1": error.abs().mean(),
            "l2": 2 * error.square().mean(),
            "pooled_rgb": 0.3 * (latent.mean.float() - target).square().mean(),
            "kl": 1e-3 * kl,
        }

    fit("vae", model, loss_of, args, len(pixels))
    fold_latent_statistics(model, encode(model, pixels[:1000]))
    return model


@torch.no_grad()
def encode(vae: AutoencoderKL, pixels: torch.Tensor) -> torch.Tensor:
    """(N, 3, 128, 128) uint8 to latent means, (N, 3, 32, 32) float."""
    parts = []
    with torch.autocast("cpu", torch.bfloat16):
        for part in pixels.split(32):
            parts.append(vae.encode(to_unit(part)).latent_dist.mean.float())
    return torch.cat(parts)


@torch.no_grad()
def fold_latent_statistics(vae: AutoencoderKL, latents: torch.Tensor) -> None:
    """Make the latent channels zero-mean, unit-variance through the 1 x 1 quant convolutions."""
    mean, std = latents.mean((0, 2, 3)), latents.std((0, 2, 3))
    c = len(mean)
    vae.quant_conv.weight[:c] /= std[:, None, None, None]
    vae.quant_conv.bias[:c] = (vae.quant_conv.bias[:c] - mean) / std
    vae.quant_conv.bias[c:] -= 2 * std.log()  # the log-variances scale along
    vae.post_quant_conv.bias += vae.post_quant_conv.weight[:, :, 0, 0] @ mean
    vae.post_quant_conv.weight *= std[:, None, None]


def training_latents(args, vae: AutoencoderKL, pixels: torch.Tensor) -> torch.Tensor:
    """`encode` takes minutes: kept beside the autoencoder's checkpoint until that changes."""
    path, source = Path(args.work) / "latents.pt", Path(args.work) / "vae.pt"
    if not path.exists() or path.stat().st_mtime < source.stat().st_mtime:
        save_atomically(encode(vae, pixels), path)
    return torch.load(path, weights_only=True)


class PooledKeys:
    """An attention processor whose keys and values are averaged over 4 x 4 tokens.

    Attention among 1,024 tokens is half of a training step on a CPU, and coarse keys and values
    change little: most steps train with them, the last ones without.
    """

    def __call__(self, attn, hidden_states, *_, **__):
        batch, tokens, width = hidden_states.shape
        side = math.isqrt(tokens)
        grid = hidden_states.transpose(1, 2).reshape(batch, width, side, side)
        coarse = F.avg_pool2d(grid, 4).flatten(2).transpose(1, 2)
        query, key, value = (
            x.unflatten(2, (attn.heads, -1)).transpose(1, 2)
            for x in (attn.to_q(hidden_states), attn.to_k(coarse), attn.to_v(coarse))
        )
        out = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return attn.to_out[1](attn.to_out[0](out))


def set_attention(unet: nn.Module, pooled: bool) -> None:
    """Cheap attention for most of the training: two heads (the number of heads changes no
    parameter's shape) and, at the latent's own resolution, pooled keys and values."""
    for module in unet.modules():
        if isinstance(module, Attention):
            module.heads = 2 if pooled else networks.HEADS
    for block in (unet.down_blocks[0], unet.up_blocks[-1]):
        for module in block.modules():
            if isinstance(module, BasicTransformerBlock):
                module.attn1.set_processor(PooledKeys() if pooled else AttnProcessor2_0())


def velocity_loss(unet, text_encoder, latents, ids, empty, step, steps, indices):
    """Velocity prediction (unweighted: every noise level counts), captions dropped 10 %."""
    alphas, batch = networks.build_scheduler().alphas_cumprod, len(indices)
    clean = latents[indices]
    kept = (torch.rand(batch) > 0.1)[:, None]
    # Towards high noise at first, where the layout is decided; level at the end.
    lean = max(0.6, min(1.0, 0.6 + 0.6 * step / steps))
    t = (1000 * torch.rand(batch) ** lean).long().clamp(max=999)
    noise = torch.randn_like(clean)
    a, s = (x[:, None, None, None] for x in (alphas[t].sqrt(), (1 - alphas[t]).sqrt()))
    with torch.autocast("cpu", torch.bfloat16):
        context = text_encoder(torch.where(kept, ids[indices], empty))[0]
        out = unet(a * clean + s * noise, t, context, return_dict=False)[0]
    return {"velocity": (out.float() - (a * noise - s * clean)).square().mean()}


def train_unet(args, tokenizer, scorer, vae):
    """The U-Net, with the scorer's text tower as its text encoder.

    That is frozen, as CLIP's is in Stable Diffusion: trained along, it loses which object is where
    before the U-Net has learnt to read it.
    """
    torch.manual_seed(args.seed)
    unet, text_encoder = networks.build_unet(), networks.build_text_encoder(tokenizer)
    text_encoder.load_state_dict(scorer.text_model.state_dict())
    text_encoder.eval().requires_grad_(False)
    drawn, pixels = training_images(args)
    latents = cache(lambda: training_latents(args, vae, pixels))  # not needed once trained
    ids = tokens(tokenizer, [scenes.caption(s) for s in drawn])
    empty = tokens(tokenizer, [""])

    def loss_of(step, indices):
        set_attention(unet, pooled=step < args.unet.pooled_until)
        return velocity_loss(
            unet, text_encoder, latents(), ids, empty, step, args.unet.steps, indices
        )

    fit("unet", unet, loss_of, args, len(drawn), ema_decay=0.999)
    set_attention(unet, pooled=False)
    return unet, text_encoder


def tune(args, tokenizer, unet, text_encoder, vae) -> None:
    """The U-Net once more, half of each batch scenes of one object: they are three in ten of the
    scenes, and where shapes fail most."""
    torch.manual_seed(args.seed)
    drawn, pixels = training_images(args)
    latents = cache(lambda: training_latents(args, vae, pixels))
    ids = tokens(tokenizer, [scenes.caption(s) for s in drawn])
    empty = tokens(tokenizer, [""])
    single = torch.tensor([i for i, scene in enumerate(drawn) if scene.second is None])

    def loss_of(step, indices):
        set_attention(unet, pooled=step < args.tune.pooled_until)
        half, steps = len(indices) // 2, args.tune.steps
        indices = torch.cat((indices[half:], single[indices[:half] % len(single)]))
        return velocity_loss(unet, text_encoder, latents(), ids, empty, steps, steps, indices)

    fit("tune", unet, loss_of, args, len(drawn), ema_decay=0.995)
    set_attention(unet, pooled=False)


def judge_targets(drawn: list[scenes.Scene]) -> dict[str, torch.Tensor]:
    """Class indices by head, (N,) each; -100 where there is no second object."""
    heads = networks.Judge.HEADS
    rows = {name: [] for name in heads}
    for scene in drawn:
        layout, objects = "single", list(scene.things)
        if scene.relation:
            layout = "beside" if scene.relation in ("left of", "right of") else "stacked"
            if scene.relation in ("right of", "below"):
                objects.reverse()
        rows["background"].append(heads["background"].index(scene.background))
        rows["layout"].append(heads["layout"].index(layout))
        for which, thing in zip("ab", [*objects, None][:2], strict=True):
            for what in ("size", "colour", "shape"):
                name = f"{which}_{what}"
                rows[name].append(heads[name].index(getattr(thing, what)) if thing else -100)
    return {name: torch.tensor(values) for name, values in rows.items()}


def train_judge(args):
    """Cross-entropy on real scenes under slight noise and blur."""
    torch.manual_seed(args.seed)
    model = networks.Judge()
    drawn, pixels = training_images(args)
    targets = judge_targets(drawn)

    def loss_of(step, indices):
        images = to_unit(pixels[indices])
        if step % 2:
            images = F.interpolate(F.avg_pool2d(images, 2), scale_factor=2, mode="bilinear")
        images = images + 0.15 * torch.rand(len(images), 1, 1, 1) * torch.randn_like(images)
        return {
            name: F.cross_entropy(logits, targets[name][indices])
            for name, logits in model(images).items()
        }

    fit("judge", model, loss_of, args, len(drawn))
    return model


def export(args, tokenizer, scorer, vae, unet, text_encoder, judge) -> None:
    out = Path(args.out)
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=networks.build_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    for folder in ("pipeline", "scorer", "judge"):
        shutil.rmtree(out / folder, ignore_errors=True)
    pipeline.to(torch.float16).save_pretrained(out / "pipeline")
    scorer.half().save_pretrained(out / "scorer")
    tokenizer.save_pretrained(out / "scorer")
    networks.build_image_processor().save_pretrained(out / "scorer")
    for folder in (out / "pipeline" / "text_encoder", out / "scorer"):
        load_as_float32(folder / "config.json")
    (out / "judge").mkdir(parents=True)
    state = {k: v.half() if v.is_floating_point() else v for k, v in judge.state_dict().items()}
    save_file(state, out / "judge" / "model.safetensors")


def load_as_float32(config: Path) -> None:
    """Transformers loads in the dtype that a config names, Diffusers in float32 unless told: a
    pipeline loaded plainly would mix the two."""
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace('"dtype": "float16"', '"dtype": "float32"'), encoding="utf-8")


def main(args) -> None:
    stages = list(args.stages)
    unknown = set(stages) - set(DEFAULTS["stages"])
    if unknown:
        raise SystemExit(f"stages={sorted(unknown)}: not a stage; one of {DEFAULTS['stages']}")
    tokenizer = networks.build_tokenizer(Path(args.work) / "tokenizer")
    # A stage that is finished loads from its checkpoint at once; one that is not trains.
    scorer = train_scorer(args, tokenizer)
    if stages == ["scorer"]:
        return
    judge = train_judge(args) if {"judge", "export"} & set(stages) else None
    if stages == ["judge"]:
        return
    vae = train_vae(args)
    if not {"unet", "tune", "export"} & set(stages):
        return
    unet, text_encoder = train_unet(args, tokenizer, scorer, vae)
    if {"tune", "export"} & set(stages):
        tune(args, tokenizer, unet, text_encoder, vae)
    if "export" in stages:
        export(args, tokenizer, scorer, vae, unet, text_encoder, judge)


if __name__ == "__main__":
    main(OmegaConf.merge(DEFAULTS, OmegaConf.from_cli()))
