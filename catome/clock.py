"""Which step of which generation a U-Net evaluation belongs to."""

from torch import Tensor


class Clock:
    """Counts U-Net evaluations and notices when a generation begins. No tensor's value is read.

    A schedule is a tensor of timesteps, and a loop over one hands its elements to the U-Net. Which
    element of which schedule a timestep is, its place in memory tells.

    An evaluation is a step of its own, but for those that follow at the same element of a schedule:
    they are further parts of its step (the degraded image of self-attention guidance, the views of
    a panorama, guided and unguided rows one after the other). Timesteps that repeat within a
    schedule (PLMS, Heun) are elements of their own. On a bare U-Net, calls of the same shape are
    steps of their own in any case.

    A generation begins at the first element of another of the pipeline's schedules, or at the
    element at which the last generation began. It lasts as long as its loop, whatever becomes of
    the scheduler meanwhile: it may be copied, replaced, or given other timesteps. Timesteps that
    jump back (resampling) stay in their generation. Where timesteps are handed over as tensors of
    their own, or numbers, a generation begins when a scheduler has another `timesteps` tensor than
    before, which every `set_timesteps` makes. Nothing is wrapped, so nothing is left behind by an
    exception or by removal.

    Without a scheduler a generation begins when the timestep goes up. That does read its value,
    which waits for the device if it is a tensor there. It cannot tell apart generations that end
    and begin at the same timestep, e.g. of a single step: `new_generation()` can.

    Attributes:
        generation: counted from 0.
        step: within the generation, from 0; -1 before the first.
        same_step: whether the latest evaluation is a further part of its step.
    """

    def __init__(self):
        self.generation = 0
        self.step = -1
        self.same_step = False
        self._schedules = ()
        self._loop = None  # held, so that its place in memory cannot be given to another
        self._element = None  # of the loop, at the latest evaluation
        self._begun_at = None  # element of the loop
        self._shape = None
        self._last = None

    def new_generation(self) -> None:
        """The next evaluation is of step 0 of a new generation."""
        if self.step >= 0:
            self.generation += 1
        self.step = -1
        self._last = self._element = None

    def tick(
        self, timestep: Tensor | float, *schedulers: object, shape: tuple[int, ...] | None = None
    ) -> bool:
        """Count one evaluation; return whether it is the first of its generation.

        Args:
            timestep: number or tensor given to the U-Net (its first element counts).
            schedulers: of the pipeline, if there is a pipeline.
            shape: of the sample given to the U-Net.
        """
        schedules = [getattr(one, "timesteps", None) for one in schedulers]
        schedules = tuple(one for one in schedules if one is not None)
        element = element_of_schedule(timestep)
        in_loop = element is not None and _share_memory(timestep, self._loop)
        if self._begins(timestep, element, in_loop, schedules):
            self.new_generation()
        self.same_step = in_loop and element == self._element and self.step >= 0
        if not schedules:  # repeated calls are evaluations one after the other, unless they differ
            self.same_step &= shape != self._shape
        if not self.same_step:
            self.step += 1
        first = self.step == 0 and not self.same_step
        if first or (element is not None and not in_loop):
            self._begun_at = element if first else None
        if element is not None:
            self._loop = timestep
        self._schedules, self._element, self._shape = schedules, element, shape
        return first

    def _begins(
        self, timestep: Tensor | float, element: int | None, in_loop: bool, schedules: tuple
    ) -> bool:
        if not schedules:
            now = float(timestep.flatten()[0] if isinstance(timestep, Tensor) else timestep)
            up, self._last = self._last is not None and now > self._last, now
            return up
        if in_loop:
            return element == self._begun_at and element != self._element
        if element is not None and any(_share_memory(timestep, one) for one in schedules):
            return True
        held = self._schedules
        return len(schedules) != len(held) or any(
            a is not b for a, b in zip(schedules, held, strict=True)
        )


def element_of_schedule(timestep: Tensor | float) -> int | None:
    """Which element of a longer tensor in memory a timestep is; None if of none."""
    if not isinstance(timestep, Tensor):
        return None
    if any(n > 1 and step for n, step in zip(timestep.shape, timestep.stride(), strict=True)):
        return None
    alone = timestep.untyped_storage().nbytes() <= timestep.element_size()
    return None if alone else timestep.storage_offset()


def _share_memory(one: Tensor, other: object) -> bool:
    if not isinstance(other, Tensor):
        return False
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata
