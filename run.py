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

from experiments.common.errors import bad
from experiments.common.paths import ROOT
from experiments.settings import messages


@hydra.main(version_base="1.3", config_path=str(ROOT / "configs"), config_name="config")
def job(cfg: DictConfig) -> None:
    if cfg.plan is not None:
        raise bad("plan", cfg.plan, "plans an experiment; add +experiment=<name>")
    # Imported when the settings are known to be good: what paints takes seconds to load.
    from experiments.runner.validation import validate

    validate(cfg)
    from experiments.runner.finish import run_cell
    from experiments.runner.observe import observe
    from experiments.runner.one_row import debug_row, run_row

    if cfg.experiment.observation is not None:
        observe(cfg)
    elif cfg.row is not None:
        run_row(cfg)
    elif cfg.debug == "row":
        debug_row(cfg, str(cfg.method.name))
    else:
        run_cell(cfg)


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
