"""A match as data: which token goes where, and back."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class MergeMap:
    """Index tensors that shorten a sequence by merging tokens, and lengthen it again.

    The short sequence of a row holds its unmerged sources, then its destinations; all rows keep the
    same number. All indices are flat over (row, token), so that merging is two gathers and one
    addition, and un-merging one gather, whatever the batch.

    Attributes:
        rows: batch rows B.
        tokens: tokens in a row N.
        destinations: (D,) tokens that are destinations, the same in all rows.
        destination_rows: (B * D,) the same in flat indices of (B, N).
        unmerged: (B * (L - D),) flat indices of (B, N).
        merged: (M,) merged sources, flat indices of (B, N), M = B * count.
        target: (M,) where each of them goes, flat indices of (B, D).
        size: (B * D, 1) tokens that a destination becomes the mean of, fp32.
        restored: (B * N,) where every token's output is found, flat indices of (B, L).
        count: merged sources of each row.
        length: tokens in a row of the short sequence L = N - count.
    """

    rows: int
    tokens: int
    destinations: Tensor
    destination_rows: Tensor
    unmerged: Tensor
    merged: Tensor
    target: Tensor
    size: Tensor
    restored: Tensor

    @staticmethod
    def build(
        tokens: int,
        sources: Tensor,
        destinations: Tensor,
        nearest: Tensor,
        order: Tensor,
        count: int,
    ) -> "MergeMap":
        """The map that merges the first `count` sources of `order[b]` in each row b.

        Args:
            tokens: tokens in a row N.
            sources: (S,) tokens that are sources.
            destinations: (D,) tokens that are destinations.
            nearest: (B, S) position in `destinations` of each source's destination.
            order: (B, S) positions in `sources`, the first to be merged first.
            count: merged sources of each row, 0 to S.
        """
        device = order.device
        (rows, n_sources), n_destinations = order.shape, len(destinations)
        row = torch.arange(rows, device=device)[:, None]
        rank = torch.arange(n_sources, device=device)
        room = n_sources - count  # unmerged sources
        length = room + n_destinations

        source_rows = sources[order] + tokens * row
        nearest = nearest.gather(1, order)
        target = (nearest + n_destinations * row)[:, :count].flatten()
        destination_rows = (destinations + tokens * row).flatten()
        size = torch.ones(rows * n_destinations, device=device)
        size.index_add_(0, target, torch.ones(len(target), device=device))
        restored = torch.empty(rows * tokens, dtype=torch.long, device=device)
        restored[source_rows] = length * row + torch.where(
            rank < count, room + nearest, rank - count
        )
        restored[destination_rows] = (
            length * row + room + torch.arange(n_destinations, device=device)
        ).flatten()
        return MergeMap(
            rows,
            tokens,
            destinations,
            destination_rows,
            source_rows[:, count:].flatten(),
            source_rows[:, :count].flatten(),
            target,
            size[:, None],
            restored,
        )

    # Of a tensor's size, and not fields, so that a compiled graph can hold for any count.
    @property
    def count(self) -> int:
        return self.merged.shape[0] // self.rows

    @property
    def length(self) -> int:
        return self.tokens - self.count

    @property
    def device(self) -> torch.device:
        return self.restored.device

    @property
    def assignment(self) -> Tensor:
        """(B, N) the token each token is merged into; itself if it is not merged."""
        row = torch.arange(self.rows, device=self.device)[:, None]
        kept = torch.cat(
            (
                self.unmerged.view(self.rows, -1) - self.tokens * row,
                self.destinations.expand(self.rows, -1),
            ),
            dim=1,
        )
        return kept.gather(1, self.restored.view(self.rows, -1) - self.length * row)

    def overlap(self, other: "MergeMap") -> Tensor:
        """(B,) share of this map's (source, destination) pairs that `other` holds too."""
        ours, theirs = self.assignment, other.assignment
        if ours.shape != theirs.shape:
            raise ValueError(
                f"overlap: maps of {tuple(ours.shape)} and {tuple(theirs.shape)} tokens"
            )
        paired = ours != torch.arange(self.tokens, device=self.device)
        return (paired & (ours == theirs)).sum(1) / paired.sum(1).clamp(min=1)

    def merge(self, x: Tensor) -> Tensor:
        """(B, N, C) to (B, L, C): each destination becomes the mean of itself and its sources.

        Means are taken in fp32 or better and rounded once.
        """
        self._expect(x, self.tokens)
        flat = x.reshape(self.rows * self.tokens, x.shape[-1])
        wide = torch.promote_types(x.dtype, torch.float32)
        mean = flat.index_select(0, self.destination_rows).to(wide)
        mean.index_add_(0, self.target, flat.index_select(0, self.merged).to(wide))
        mean /= self.size
        unmerged = flat.index_select(0, self.unmerged).view(self.rows, -1, x.shape[-1])
        return torch.cat((unmerged, mean.to(x.dtype).view(self.rows, -1, x.shape[-1])), dim=1)

    def unmerge(self, y: Tensor) -> Tensor:
        """(B, L, C) to (B, N, C): merged sources get a copy of their destination's output."""
        self._expect(y, self.length)
        flat = y.reshape(self.rows * self.length, y.shape[-1])
        return flat.index_select(0, self.restored).view(self.rows, self.tokens, y.shape[-1])

    def to(self, device: torch.device | str) -> "MergeMap":
        """The same map on another device."""
        moved = {
            f.name: v.to(device) if isinstance(v := getattr(self, f.name), Tensor) else v
            for f in fields(self)
        }
        return MergeMap(**moved)

    def _expect(self, x: Tensor, tokens: int) -> None:
        if x.ndim != 3 or x.shape[:2] != (self.rows, tokens):
            raise ValueError(
                f"tokens of shape {tuple(x.shape)}: must be ({self.rows}, {tokens}, channels)"
            )
