"""A Hydra sweeper whose jobs are the named rows of an experiment.

It launches the rows through whatever launcher is configured, goes on past rows that fail, and ends
in the stages that concern all rows: evaluate, time, report. A launcher that does all of this by
itself has a method `submit_rows`, and `elsewhere = True` if that is on other machines.
"""

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

ConfigStore.instance().store(
    group="hydra/sweeper",
    name="rows",
    node={"_target_": "hydra_plugins.rows_sweeper.rows_sweeper.RowsSweeper"},
    provider="catome",
)


class RowsSweeper(Sweeper):
    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        # Imported here: Hydra loads its plug-ins even where it only prints help.
        from experiments.runner import rows
        from experiments.runner.validation import validate

        if self.config.experiment.before is not None:
            validate(self.config)
            from experiments.runner.before_rows import before_rows

            before_rows(without_hydra(self.config))
        overrides = rows.expand(self.config)
        jobs = {name: [*arguments, *own] for name, own in overrides.items()}
        configs = {name: self.compose(job) for name, job in jobs.items()}
        for cfg in configs.values():
            validate(cfg, getattr(self.launcher, "elsewhere", False))
        if self.config.plan is not None:
            from experiments.runner.plan import PLANS

            print(PLANS[self.config.plan](without_hydra(self.config), configs))
            return
        from experiments.runner.finish import conclude, report_exception

        if self.config.debug == "row":
            from experiments.runner.one_row import debug_row

            for name, cfg in configs.items():
                debug_row(cfg, name)
            return
        if hasattr(self.launcher, "submit_rows"):
            self.launcher.submit_rows(without_hydra(self.config), configs)
            return
        results = self.launcher.launch(list(jobs.values()), initial_job_idx=0)
        failed = {}
        for name, result in zip(jobs, results, strict=True):
            if result.status != JobStatus.COMPLETED:
                failed[name] = result._return_value
                report_exception(name, failed[name])
        conclude(without_hydra(self.config), configs, failed)

    def compose(self, overrides: list[str]) -> DictConfig:
        cfg = self.context.config_loader.load_sweep_config(self.config, overrides)
        return without_hydra(cfg)


def without_hydra(cfg: DictConfig) -> DictConfig:
    """What a job itself is given: the configuration less Hydra's own."""
    return OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])
