"""The command: compose the configuration, run it.

python run.py                              one cell: CA-ToMe on the toy world
python run.py +experiment=ablation_cache   an experiment: its rows, its table, its plots
python run.py --help                       more commands, groups and keys
"""

import os
import sys

# Errors reach `main` as they are, to be told in one line.
os.environ["HYDRA_FULL_ERROR"] = "1"

import hydra
from omegaconf import DictConfig

from experiments import messages
from experiments.config import ROOT, bad


@hydra.main(version_base="1.3", config_path=str(ROOT / "configs"), config_name="config")
def job(cfg: DictConfig) -> None:
    from experiments import runner

    if cfg.experiment.observation is not None:
        from experiments.observe import observe

        observe(cfg)
        return
    if cfg.plan is not None:
        raise bad("plan", cfg.plan, "plans an experiment; add +experiment=<name>")
    if cfg.row is not None:
        runner.run_row(cfg)
    elif cfg.debug == "row":
        runner.debug_row(cfg, str(cfg.method.name))
    else:
        runner.run_cell(cfg)


def main() -> int:
    try:
        job()
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept, the same command goes on", file=sys.stderr)
        return 130
    except Exception as error:
        line = messages.one_line(error, sys.argv[1:])
        if line is None:
            raise
        print(line, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
