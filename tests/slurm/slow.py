"""A method of somebody else's that waits, so that a task takes as long on any machine."""

import time
from contextlib import contextmanager

from experiments.accelerators.base import Method


class Slow(Method):
    revision = 1

    def __init__(self, name, seconds):
        super().__init__(name)
        self.seconds = seconds

    def settings(self):
        return {"name": self.name}

    @contextmanager
    def attach(self, pipe, record=False, on_match=None):
        hook = pipe.unet.register_forward_pre_hook(lambda *_: time.sleep(self.seconds))
        try:
            yield
        finally:
            hook.remove()
