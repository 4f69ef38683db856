"""hydra-submitit-launcher's SLURM launcher, for experiments whose sweeper names rows.

Plain sweeps (`-m method=a,b`) run as they do there. Named rows become one array of painting tasks
and one job for the stages that concern all rows.
"""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
from omegaconf import DictConfig


@dataclass
class SlurmRowsConf(SlurmQueueConf):
    _target_: str = "hydra_plugins.slurm_rows.slurm_rows.SlurmRowsLauncher"
    retries: int = 2  # of a task that was killed without a word
    poll_s: float = 5.0  # seconds between looks at the queue


class SlurmRowsLauncher(SlurmLauncher):
    elsewhere = True  # devices are those of the nodes

    def __init__(self, retries: int, poll_s: float, **params: Any) -> None:
        super().__init__(**params)
        self.rows_options = {**self.params, "retries": retries, "poll_s": poll_s}

    def submit_rows(self, cfg: DictConfig, rows: dict[str, DictConfig]) -> None:
        # Imported here: Hydra loads its plug-ins even where it only prints help.
        from experiments.cluster.submit import submit_rows

        submit_rows(cfg, rows, self.rows_options)


ConfigStore.instance().store(
    group="hydra/launcher", name="slurm_rows", node=SlurmRowsConf(), provider="catome"
)
