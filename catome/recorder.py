"""What merged, where and when, kept on request."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Record:
    """One block at one U-Net evaluation.

    Attributes:
        generation, step: of the clock, both from 0.
        block: the block's name within the U-Net.
        matched: True if the block matched anew, False if it re-used a match or merges nothing.
        grid: height and width of the token grid.
        sources: tokens of a row that could merge.
        tokens_in: tokens in a row.
        tokens_out: tokens kept, one number a row of the batch.
        similarities: (rows, sources) best cosine similarity of each source in token order, fp32 on
            the CPU; where the block matched and the recorder asks for them, else None.
        pairs: (rows, tokens) the token each token is merged into (itself if not merged), int32 on
            the CPU; likewise.
    """

    generation: int
    step: int
    block: str
    matched: bool
    grid: tuple[int, int]
    sources: int
    tokens_in: int
    tokens_out: tuple[int, ...]
    similarities: Tensor | None = None
    pairs: Tensor | None = None

    def to_dict(self) -> dict:
        """The plain fields, without the tensors, as JSON types."""
        plain = {k: v for k, v in vars(self).items() if k not in ("similarities", "pairs")}
        return {**plain, "grid": list(self.grid), "tokens_out": list(self.tokens_out)}


class Recorder:
    """Collects a `Record` of every patched block at every evaluation.

    Args:
        similarities, pairs: also keep these tensors of each match (copied to the CPU).
        on_record: called with each record as it is made.

    Attributes:
        records: all records so far, oldest first.
    """

    def __init__(
        self,
        similarities: bool = False,
        pairs: bool = False,
        on_record: Callable[[Record], None] | None = None,
    ):
        self.similarities = similarities
        self.pairs = pairs
        self.on_record = on_record
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        """Keep a record."""
        self.records.append(record)
        if self.on_record is not None:
            self.on_record(record)

    def clear(self) -> None:
        """Forget all records."""
        self.records.clear()

    def share_merged(self, of: str = "sources") -> float:
        """Share of all recorded "sources", or of all "tokens", that was merged."""
        if of not in ("sources", "tokens"):
            raise ValueError(f"of={of!r}: must be 'sources' or 'tokens'")
        merged = sum(r.tokens_in * len(r.tokens_out) - sum(r.tokens_out) for r in self.records)
        per_row = ((r.sources if of == "sources" else r.tokens_in, r) for r in self.records)
        return merged / max(1, sum(n * len(r.tokens_out) for n, r in per_row))
