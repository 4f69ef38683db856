"""A launcher for one machine with several GPUs: named rows on a worker a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class LocalGpusConf:
    _target_: str = "hydra_plugins.local_gpus.local_gpus.LocalGpusLauncher"
    workers: int | None = None  # null: as many as there are GPUs


class LocalGpusLauncher(Launcher):
    def __init__(self, workers: int | None) -> None:
        self.workers = workers

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        pass

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        raise HydraException("hydra/launcher=local_gpus runs the rows of +experiment=<name> only")

    def submit_rows(self, cfg: DictConfig, rows: dict[str, DictConfig]) -> None:
        # Imported here: Hydra loads its plug-ins even where it only prints help.
        from experiments.cluster.local import run_rows

        run_rows(cfg, rows, self.workers)


ConfigStore.instance().store(
    group="hydra/launcher", name="local_gpus", node=LocalGpusConf(), provider="catome"
)
