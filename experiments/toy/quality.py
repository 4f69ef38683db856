"""Judge the toy model: are held-out captions obeyed?

    python -m experiments.toy.quality                     # writes results/toy/quality.json
    python -m experiments.toy.quality count=64 weights=<folder> out=<folder>

Paints captions whose combination of attributes was kept out of training, without merging, at the
benchmark's settings, and reads the pictures with a classifier trained on real scenes, and for
colour also with a plain rule on pixels. Objects are judged where the caption puts them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from omegaconf import OmegaConf
from PIL import Image
from safetensors.torch import load_file
from tqdm import tqdm

from experiments.common.files import write_json
from experiments.toy import networks, scenes
from experiments.toy.train import judge_targets, to_unit

DEFAULTS = {
    "weights": "experiments/toy/weights",
    "out": "results/toy",
    "count": 256,
    "batch": 8,
    "steps": 50,
    "guidance_scale": 2.0,
    "seed": 3,
}


def load_judge(folder: Path) -> networks.Judge:
    judge = networks.Judge()
    state = load_file(folder / "model.safetensors").items()
    judge.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in state})
    return judge.eval()


@torch.no_grad()
def judged(judge: networks.Judge, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Class indices by head for (N, 3, 128, 128) uint8 pixels."""
    parts = [judge(to_unit(part)) for part in pixels.split(64)]
    return {name: torch.cat([p[name].argmax(1) for p in parts]) for name in parts[0]}


def accuracy(judge: networks.Judge, pixels: torch.Tensor, drawn: list[scenes.Scene]) -> dict:
    """Share of right answers by head, over the scenes that have the attribute, and of all."""
    answers, targets = judged(judge, pixels), judge_targets(drawn)
    hits = {}
    for name, target in targets.items():
        present = target >= 0
        hits[name] = (answers[name][present] == target[present]).float().mean().item()
    right = sum((answers[n] == t)[t >= 0].sum().item() for n, t in targets.items())
    asked = sum((t >= 0).sum().item() for t in targets.values())
    return {**hits, "all": right / asked}


def first_is_b(scene: scenes.Scene) -> bool:
    return scene.relation in ("right of", "below")


def obedience(
    judge: networks.Judge, pixels: torch.Tensor, drawn: list[scenes.Scene]
) -> dict[str, float]:
    """Shares of captions obeyed: background, first object's colour, shape and size, relation."""
    answers, targets = judged(judge, pixels), judge_targets(drawn)
    right = {name: answers[name] == targets[name] for name in targets}
    pairs = torch.tensor([s.relation is not None for s in drawn])
    b_first = torch.tensor([first_is_b(s) for s in drawn])
    out = {"background": right["background"].float().mean().item()}
    for what in ("colour", "shape", "size"):
        first = torch.where(b_first, right[f"b_{what}"], right[f"a_{what}"])
        out[f"{what} of the first object"] = first.float().mean().item()
        second = torch.where(b_first, right[f"a_{what}"], right[f"b_{what}"])
        out[f"{what} of the second object"] = second[pairs].float().mean().item()
    # The two colours differ, so that "left of" holds if the layout and both colours' places do.
    relation = right["layout"] & right["a_colour"] & right["b_colour"]
    out["relation of two objects"] = relation[pairs].float().mean().item()
    by_pixels = [pixel_colour(p.permute(1, 2, 0).numpy(), s) == s.first.colour
                 for p, s in zip(pixels, drawn, strict=True)]  # fmt: skip
    out["colour of the first object, by pixels"] = float(np.mean(by_pixels))
    return out


def pixel_colour(image: np.ndarray, scene: scenes.Scene) -> str:
    """The object colour that most pixels are nearest to, where the caption puts the first object.

    (128, 128, 3) uint8; pixels nearer to a background colour do not vote.
    """
    middle = scenes.SIZE // 2
    region = {
        None: image,
        "left of": image[:, :middle],
        "right of": image[:, middle:],
        "above": image[:middle],
        "below": image[middle:],
    }[scene.relation].reshape(-1, 3)
    names = [*scenes.COLOURS, *scenes.BACKGROUNDS]
    palette = np.float32([*scenes.COLOURS.values(), *scenes.BACKGROUNDS.values()])
    nearest = np.linalg.norm(region[:, None].astype(np.float32) - palette, axis=2).argmin(1)
    votes = np.bincount(nearest, minlength=len(names))[: len(scenes.COLOURS)]
    return names[int(votes.argmax())]


def attention_share(unet) -> float:
    """Share of an evaluation's time that top-level self-attention takes, measured here."""
    import time

    spent = {"attention": 0.0, "all": 0.0}
    marks: dict[int, float] = {}

    def start(module, *_):
        marks[id(module)] = time.perf_counter()

    def stop(key):
        def hook(module, *_):
            spent[key] += time.perf_counter() - marks[id(module)]

        return hook

    top = [unet.down_blocks[0], unet.up_blocks[-1]]
    attentions = [m.attn1 for b in top for m in b.modules() if hasattr(m, "attn1")]
    hooks = [unet.register_forward_pre_hook(start), unet.register_forward_hook(stop("all"))]
    for attention in attentions:
        hooks += [attention.register_forward_pre_hook(start)]
        hooks += [attention.register_forward_hook(stop("attention"))]
    sample = torch.randn(2, unet.config.in_channels, networks.LATENT_SIZE, networks.LATENT_SIZE)
    context = torch.randn(2, networks.MAX_TOKENS, networks.TEXT_WIDTH)
    with torch.no_grad():
        for i in range(25):
            if i == 5:
                spent.update(attention=0.0, all=0.0)
            unet(sample, 500, context)
    for hook in hooks:
        hook.remove()
    return spent["attention"] / spent["all"]


def grid(images: list[np.ndarray], columns: int) -> Image.Image:
    rows = [np.concatenate(images[i : i + columns], 1) for i in range(0, len(images), columns)]
    return Image.fromarray(np.concatenate([r for r in rows if r.shape == rows[0].shape], 0))


def main(args) -> dict:
    weights, out = Path(args.weights), Path(args.out)
    judge = load_judge(weights / "judge")
    pipe = StableDiffusionPipeline.from_pretrained(weights / "pipeline", safety_checker=None)
    pipe.set_progress_bar_config(disable=True)

    real = scenes.sample(1000, seed=11, held_out=True)
    real_pixels = torch.from_numpy(np.stack([scenes.render(s) for s in real])).permute(0, 3, 1, 2)
    with torch.no_grad():
        decoded = torch.cat([
            pipe.vae.decode(pipe.vae.encode(to_unit(part)).latent_dist.mean).sample
            for part in real_pixels[:256].split(16)
        ])  # fmt: skip
    decoded = ((decoded + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    mse = (decoded.float() - real_pixels[:256].float()).square().mean((1, 2, 3))

    drawn = scenes.sample(args.count, args.seed, held_out=True)
    painted = []
    for start in tqdm(range(0, len(drawn), args.batch), desc="painting", unit="batch"):
        part = drawn[start : start + args.batch]
        generators = [torch.Generator().manual_seed(start + i) for i in range(len(part))]
        images = pipe(
            [scenes.caption(s) for s in part],
            num_inference_steps=args.steps,
            guidance_scale=args.guidance_scale,
            generator=generators,
            output_type="np",
        ).images
        painted += list(images)
    arrays = [np.uint8(np.round(255 * p)) for p in painted]
    pixels = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)
    report = {
        "captions": args.count,
        "steps": args.steps,
        "guidance_scale": args.guidance_scale,
        "obeyed": obedience(judge, pixels, drawn),
        "judge on real held-out scenes": accuracy(judge, real_pixels, real),
        "judge on their reconstructions": accuracy(judge, decoded, real[:256]),
        "autoencoder PSNR, dB": (10 * torch.log10(255**2 / mse)).mean().item(),
        "share of top-level self-attention in an evaluation": attention_share(pipe.unet),
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "quality.json", report)
    grid(arrays[:64], 8).save(out / "quality.png")
    return report


if __name__ == "__main__":
    import json

    print(json.dumps(main(OmegaConf.merge(DEFAULTS, OmegaConf.from_cli())), indent=1))
