"""Score anybody's pictures under the same protocol as this project's own.

python -m experiments.evaluate images=<folder> prompts=<file> baseline=<folder> reference=<folder>
python -m experiments.evaluate images=[ours,theirs] baseline=original protocol=sada
python -m experiments.evaluate images=ours prompts=captions.json names=[clip_score]
python -m experiments.evaluate images=ours baseline=original protocol=[sada,cache_dit]

images     a folder, or several: [a,b,c]; each is a row
prompts    text, CSV or JSON; without it CLIP scores are left out
baseline   the folder whose images PSNR, SSIM, LPIPS and FD to baseline compare with
reference  folder of photographs, list of files or .npz statistics that FID compares with
names      the metrics; `metrics.<key>=...` sets any other key of theirs, protocol=<name> all that
           the named work is known to have; of several, [a,b], a table says how much is protocol
out        where tables and figures go; by default results/runs/foreign/<digest>
device, results, title
"""

from __future__ import annotations

import sys

from omegaconf import DictConfig, OmegaConf

from experiments.common import command
from experiments.common.errors import bad
from experiments.settings import protocols

OPTIONS = {
    "images": None, "prompts": None, "baseline": None, "reference": None, "names": None,
    "metrics": {}, "protocol": None, "device": "auto", "results": "results/runs", "out": None,
    "title": None,
}  # fmt: skip


def evaluate(argv: list[str]) -> str:
    """The printed table and the folder of everything."""
    options = parse(argv)
    from experiments.runner.score import score, score_under_each

    if OmegaConf.is_list(options.protocol):
        return score_under_each(options)
    table, out = score(options)
    return f"\n{table}\n\n{out}"


def parse(argv: list[str]) -> DictConfig:
    """The command's options, with defaults; unknown keys are refused."""
    options = command.command_options(argv, OPTIONS)
    if not OmegaConf.is_dict(options.metrics):
        raise bad("metrics", options.metrics, "must be given key by key: metrics.batch_size=8")
    if options.images is None or options.images == []:
        raise bad("images", options.images, "must be a folder, or several: [a,b,c]")
    several = OmegaConf.is_list(options.protocol)
    for name in options.protocol if several else [options.protocol]:
        if name not in protocols.names() and (several or name is not None):
            raise bad("protocol", name, f"must be one of {', '.join(protocols.names())}")
    if several and not 0 < len(options.protocol) == len(set(options.protocol)):
        raise bad("protocol", options.protocol, "must name a protocol, or several once each")
    return options


def main(argv: list[str]) -> int:
    """The command; returns its exit code."""
    return command.run(argv, __doc__, evaluate)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
