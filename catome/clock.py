"""Which U-Net evaluation of which generation this is."""

from torch import Tensor


class Clock:
    """Counts U-Net evaluations and notices when a generation begins.

    With a scheduler a generation begins when its `timesteps` tensor is another object than before:
    every `set_timesteps` makes a new one, and so does replacing the scheduler. Nothing is wrapped,
    so nothing is left behind by an exception or by removal. Timesteps that repeat (PLMS, Heun) or
    jump back (resampling) stay in their generation.

    Without a scheduler a generation begins when the timestep goes up. That reads the timestep's
    value, which waits for the device if it is a tensor there. It cannot tell apart generations that
    end and begin at the same timestep, e.g. of a single step: `new_generation()` can.

    Attributes:
        generation: counted from 0.
        step: evaluation within the generation, from 0; -1 before the first.
    """

    def __init__(self):
        self.generation = 0
        self.step = -1
        self._timesteps = None  # held, so that its identity cannot be given to a later tensor
        self._last = None

    def new_generation(self) -> None:
        """The next evaluation is evaluation 0 of a new generation."""
        if self.step >= 0:
            self.generation += 1
        self.step = -1
        self._last = None

    def tick(self, timestep: Tensor | float, scheduler: object | None = None) -> bool:
        """Count one evaluation; return whether it is the first of its generation.

        Args:
            timestep: number or tensor given to the U-Net (its first element counts).
            scheduler: the pipeline's scheduler, if there is a pipeline.
        """
        timesteps = getattr(scheduler, "timesteps", None)
        if timesteps is not None:
            if timesteps is not self._timesteps:
                self.new_generation()
            self._timesteps = timesteps
        else:
            now = float(timestep.flatten()[0] if isinstance(timestep, Tensor) else timestep)
            if self._last is not None and now > self._last:
                self.new_generation()
            self._last = now
        self.step += 1
        return self.step == 0
