"""Schedules that are found from a trace instead of guessed, and their files."""

from omegaconf import DictConfig


def before_rows(cfg: DictConfig) -> None:
    """Do what an experiment needs before its rows can be composed; most need nothing."""
    if cfg.experiment.before is None:
        return
    # Imported here: the methods read schedules' files, and finding them needs the methods.
    from experiments import runner
    from experiments.config import require_choice
    from experiments.schedules.find import find

    runner.validate(cfg)

    finders = {"find_schedule": find}
    require_choice("experiment.before", cfg.experiment.before, finders)
    finders[cfg.experiment.before](cfg)
