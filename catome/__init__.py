"""Training-free token merging for diffusion U-Nets: ToMe, adaptive and cached (CA-ToMe).

handle = catome.apply(pipe, catome.TokenMerging(select=catome.Threshold(0.7)))
image = pipe("a red bus in the snow").images[0]
catome.remove(pipe)
"""

from .matching import destination_tokens, match
from .merge_map import MergeMap
from .method import TokenMerging
from .patch import Handle, apply, get_handle, remove
from .recorder import Record, Recorder
from .schedule import PAPER, ByBlock, Checkpoints, EveryStep, Interval
from .selection import Ratio, Threshold

__version__ = "0.1.0"
version = __version__

__all__ = [
    "PAPER",
    "ByBlock",
    "Checkpoints",
    "EveryStep",
    "Handle",
    "Interval",
    "MergeMap",
    "Ratio",
    "Record",
    "Recorder",
    "Threshold",
    "TokenMerging",
    "apply",
    "destination_tokens",
    "get_handle",
    "match",
    "remove",
    "version",
]
