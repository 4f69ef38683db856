"""A match as data: which token goes where, and back."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, eq=False)
class MergeMap:
    """Index tensors that shorten a sequence by merging tokens, and lengthen it again.

    The short sequence of a row holds its unmerged sources, then its destinations; all rows keep the
    same number. All indices are flat over (row, token), so that merging is one sum over bags of
    tokens, and un-merging one gather, whatever the batch.

    Attributes:
        rows: batch rows B.
        tokens: tokens in a row N.
        destinations: (D,) tokens that are destinations, the same in all rows.
        members: (B * N,) all tokens, flat indices of (B, N), by the short token they become; int32.
        starts: (B * L,) where the members of each short token start, int32.
        weights: (B * N,) of each member: 1 / the members of its short token, fp32.
        restored: (B * N,) where every token's output is found, flat indices of (B, L).
        count: merged sources of each row.
        length: tokens in a row of the short sequence L = N - count.
    """

    rows: int
    tokens: int
    destinations: Tensor
    members: Tensor
    starts: Tensor
    weights: Tensor
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

        nearest = nearest.gather(1, order)
        restored = torch.empty(rows * tokens, dtype=torch.long, device=device)
        restored[sources[order] + tokens * row] = length * row + torch.where(
            rank < count, room + nearest, rank - count
        )
        restored[(destinations + tokens * row).flatten()] = (
            length * row + room + torch.arange(n_destinations, device=device)
        ).flatten()

        members = restored.argsort(stable=True)
        sizes = torch.zeros(rows * length, dtype=torch.int32, device=device)
        sizes.index_add_(0, restored, sizes.new_ones(()).expand(len(restored)))
        return MergeMap(
            rows,
            tokens,
            destinations,
            members.int(),
            (sizes.cumsum(0) - sizes).int(),
            sizes.float().reciprocal()[restored[members]],
            restored,
        )

    # Of a tensor's size, and not fields, so that a compiled graph can hold for any count.
    @property
    def count(self) -> int:
        return self.tokens - self.length

    @property
    def length(self) -> int:
        return self.starts.shape[0] // self.rows

    @property
    def device(self) -> torch.device:
        return self.restored.device

    @property
    def assignment(self) -> Tensor:
        """(B, N) the token each token is merged into; itself if it is not merged."""
        row = torch.arange(self.rows, device=self.device)[:, None]
        kept = self.members[self.starts].view(self.rows, -1).long() - self.tokens * row
        kept[:, self.length - len(self.destinations) :] = self.destinations
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
        if x.is_cuda or x.dtype == torch.float64:  # CUDA sums bf16 and fp16 in fp32 by itself
            short = F.embedding_bag(self.members, flat, self.starts, mode="mean")
        else:  # the fastest kernel of CPUs
            short = F.embedding_bag(
                self.members, flat.float(), self.starts, mode="sum", per_sample_weights=self.weights
            ).to(x.dtype)
        return short.view(self.rows, -1, x.shape[-1])

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
