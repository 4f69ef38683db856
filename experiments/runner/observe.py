"""The one entry point of observations: `+experiment=similarity`, `+experiment=pair_overlap`."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from experiments.analysis import pair_overlap, similarity
from experiments.common.files import write_json, write_text
from experiments.common.requirements import require_choice
from experiments.models import pipelines
from experiments.painting import prompts
from experiments.painting.prompts import load_prompts
from experiments.runner.records import experiment_record
from experiments.runner.validation import validate
from experiments.settings.folders import run_folder

OBSERVATIONS = {"similarity": similarity.measure, "pair_overlap": pair_overlap.measure}


def observe(cfg: DictConfig) -> None:
    """Watch the baseline's generations and write figures, plots and `table.md` into the run's
    folder; prints the table."""
    name = cfg.experiment.observation
    require_choice("experiment.observation", name, OBSERVATIONS)
    validate(cfg)
    folder = run_folder(cfg)
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    chosen, rule = load_prompts(cfg)
    table = OBSERVATIONS[name](cfg, chosen, folder)
    pipe = pipelines.load(cfg)
    write_json(folder / "manifest.json", prompts.manifest(chosen, rule, pipe.tokenizer))
    write_json(folder / "experiment.json", experiment_record(cfg, []))
    write_text(folder / "config.yaml", OmegaConf.to_yaml(cfg, resolve=True))
    options, method = cfg.generation, cfg.method
    selection = "ratio" if method.get("threshold") is None else "threshold"
    lines = [
        f"## {cfg.experiment.title}",
        tabulate(table, headers="keys", tablefmt="pipe", showindex=False),
        f"- {len(chosen)} images of the baseline ({cfg.benchmark.name}), watched at every U-Net "
        "evaluation: matches are made and merge nothing.\n"
        f"- {options.scheduler}, {options.steps} steps, guidance {options.guidance_scale:g}, "
        f"{options.width} x {options.height}, {cfg.dtype}; {selection} {method[selection]:g}, "
        f"stride {method.stride}.",
    ]
    text = "\n\n".join(lines)
    write_text(folder / "table.md", text + "\n")
    print(f"\n{text}\n\n{folder}")
