"""How many sources merge: a fixed share of the tokens, or all that are similar enough.

`Ratio` is ToMe for Stable Diffusion (arXiv 2303.17604), `Threshold` the adaptive rule of CA-ToMe
(arXiv 2501.00946).
"""

from dataclasses import dataclass

from torch import Tensor

from .checks import is_number, require


@dataclass(frozen=True)
class Ratio:
    """Merge the int(ratio * N) most similar sources of N tokens, at most all sources.

    Args:
        ratio: share of all tokens, 0 to 1. 0 merges nothing.
    """

    ratio: float

    def __post_init__(self):
        require(is_number(self.ratio) and 0 <= self.ratio <= 1, "ratio", self.ratio, "from 0 to 1")

    @property
    def merges_nothing(self) -> bool:
        return self.ratio == 0

    def count(self, tokens: int, sources: int) -> int:
        """Sources to merge of so many tokens in a row."""
        return min(int(self.ratio * tokens), sources)

    def counts(self, best: Tensor, tokens: int, images: int) -> tuple[int, ...]:
        """Sources to merge in the rows of each image; see `Threshold.counts`."""
        return (self.count(tokens, best.shape[1]),) * images


@dataclass(frozen=True)
class Threshold:
    """Merge every source whose best cosine similarity is at least `threshold`.

    Args:
        threshold: a cosine, -1 or more. 1 or more merges nothing.
    """

    threshold: float

    def __post_init__(self):
        require(
            is_number(self.threshold) and self.threshold >= -1,
            "threshold",
            self.threshold,
            "a cosine similarity, -1 or more (1 or more merges nothing)",
        )

    @property
    def merges_nothing(self) -> bool:
        return self.threshold >= 1

    def counts(self, best: Tensor, tokens: int, images: int) -> tuple[int, ...]:
        """Sources to merge in the rows of each image. Waits for the device: they depend on data.

        Args:
            best: (rows, sources) best similarity of each source, fp32.
            tokens: tokens in a row, sources and destinations together.
            images: how many images the rows belong to; row i shows image i % images. All rows of
                an image get the largest of their counts, the paper's rule at batch 1.

        Returns:
            One count an image.
        """
        passing = (best >= self.threshold).sum(dim=1)
        return tuple(passing.view(-1, images).amax(dim=0).tolist())
