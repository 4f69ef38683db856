"""A match as data: which token goes where, and back."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class MergeMap:
    """Index tensors that shorten a sequence by merging tokens, and lengthen it again.

    The short sequence of a row holds its unmerged sources, then, if other rows keep more, padding,
    then its destinations. All indices are flat over (row, token), so that merging is two gathers
    and one addition, and un-merging one gather, whatever the batch.

    Attributes:
        rows: batch rows B.
        tokens: tokens in a row N.
        length: tokens in a row of the short sequence L, padding included.
        counts: merged sources of each row.
        destinations: (D,) tokens that are destinations, the same in all rows.
        destination_rows: (B * D,) the same in flat indices of (B, N).
        unmerged: (B * (L - D),) flat indices of (B, N); padding repeats some token.
        merged: (M,) merged sources, flat indices of (B, N), M the sum of counts.
        target: (M,) where each of them goes, flat indices of (B, D).
        size: (B * D, 1) tokens that a destination becomes the mean of, fp32.
        restored: (B * N,) where every token's output is found, flat indices of (B, L).
        padding: (B, L) True at padding; None if all rows keep the same number.
    """

    rows: int
    tokens: int
    length: int
    counts: tuple[int, ...]
    destinations: Tensor
    destination_rows: Tensor
    unmerged: Tensor
    merged: Tensor
    target: Tensor
    size: Tensor
    restored: Tensor
    padding: Tensor | None

    @staticmethod
    def build(
        tokens: int,
        sources: Tensor,
        destinations: Tensor,
        nearest: Tensor,
        order: Tensor,
        counts: tuple[int, ...],
    ) -> "MergeMap":
        """The map that merges the first `counts[b]` sources of `order[b]` in each row b.

        Args:
            tokens: tokens in a row N.
            sources: (S,) tokens that are sources.
            destinations: (D,) tokens that are destinations.
            nearest: (B, S) position in `destinations` of each source's destination.
            order: (B, S) positions in `sources`, the first to be merged first.
            counts: merged sources of each of the B rows, 0 to S.
        """
        device = order.device
        (rows, n_sources), n_destinations = order.shape, len(destinations)
        row = torch.arange(rows, device=device)[:, None]
        rank = torch.arange(n_sources, device=device)
        count = torch.tensor(counts, device=device)[:, None]
        room = n_sources - min(counts)  # for unmerged sources
        length = room + n_destinations

        source_rows = sources[order] + tokens * row
        nearest = nearest.gather(1, order)
        target = nearest + n_destinations * row
        destination_rows = (destinations + tokens * row).flatten()
        padding = None
        if min(counts) == max(counts):
            unmerged = source_rows[:, counts[0] :].flatten()
            merged = source_rows[:, : counts[0]].flatten()
            target = target[:, : counts[0]].flatten()
        else:
            place = count + torch.arange(room, device=device)
            unmerged = source_rows.gather(1, place.clamp(max=n_sources - 1)).flatten()
            merged = torch.cat([s[:n] for s, n in zip(source_rows, counts, strict=True)])
            target = torch.cat([t[:n] for t, n in zip(target, counts, strict=True)])
            padding = torch.nn.functional.pad(place >= n_sources, (0, n_destinations))

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
            length,
            counts,
            destinations,
            destination_rows,
            unmerged,
            merged,
            target,
            size[:, None],
            restored,
            padding,
        )

    @property
    def device(self) -> torch.device:
        return self.restored.device

    @property
    def kept(self) -> tuple[int, ...]:
        """Tokens that each row keeps."""
        return tuple(self.tokens - n for n in self.counts)

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

    def key_bias(self, dtype: torch.dtype) -> Tensor | None:
        """(B, 1, L) to add to attention scores: -inf at padding. None where there is no padding."""
        if self.padding is None:
            return None
        zeros = torch.zeros(self.rows, 1, self.length, dtype=dtype, device=self.device)
        return zeros.masked_fill_(self.padding[:, None], float("-inf"))

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
