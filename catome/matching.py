"""Bipartite matching on the token grid (ToMe for Stable Diffusion, arXiv 2303.17604, section 3)."""

import hashlib

import torch
from torch import Tensor

from .checks import is_integer, require
from .merge_map import MergeMap
from .selection import Ratio, Threshold

# Scores are made this many at a time (all pairs of two rows of a 64 x 64 grid are 6.3 million), so
# that memory does not grow with the square of the number of tokens, and is used again: glibc asks
# the kernel anew for every 32 MB or more, which took a fifth of the matching at 128 x 128.
SCORES_AT_ONCE = 1 << 22


def pattern_generator(seed: int, step: int, block: str) -> torch.Generator:
    """A CPU generator that depends on (seed, step, block) only; the same for all devices."""
    digest = hashlib.blake2b(f"{seed}/{step}/{block}".encode(), digest_size=4).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def destination_tokens(
    height: int, width: int, stride: int, generator: torch.Generator | None = None
) -> Tensor:
    """One token of each stride x stride cell of a height x width grid, cell by cell.

    Rows and columns that do not fill a cell hold no destination.

    Args:
        generator: CPU generator that draws the token of each cell; None takes the top-left one.

    Returns:
        (cells,) token indices, int64, on the CPU.
    """
    cells = (height // stride, width // stride)
    inside = torch.zeros(cells, dtype=torch.long)
    if generator is not None:
        inside = torch.randint(stride * stride, cells, generator=generator)
    y = torch.arange(cells[0])[:, None] * stride + inside // stride
    x = torch.arange(cells[1])[None, :] * stride + inside % stride
    return (y * width + x).flatten()


def nearest_destinations(x: Tensor, sources: Tensor, destinations: Tensor) -> tuple[Tensor, Tensor]:
    """Best cosine similarity of each source and the destination it is reached at.

    All pairs are compared in the dtype of `x`; in bf16 and fp16 the similarity with the destination
    found is then computed again in fp32, so that ranking sources, and comparing them with a
    threshold, does not depend on the dtype's coarse steps near 1. Tokens of norm 0 have similarity
    0 with all others.

    Args:
        x: (B, N, C) tokens.
        sources, destinations: (S,), (D,) token indices, both non-empty.

    Returns:
        best: (B, S) fp32 (fp64 for fp64 tokens), and nearest: (B, S) positions in `destinations`.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    source, destination = x.index_select(1, sources), x.index_select(1, destinations)
    source_norm, destination_norm = (
        torch.linalg.vector_norm(t, dim=-1, dtype=wide).clamp_min(1e-12)
        for t in (source, destination)
    )
    # A source's own norm does not change which destination is best; fp16 would overflow without.
    unit = (destination / destination_norm[..., None]).to(x.dtype)
    query = source
    if x.dtype == torch.float16:
        query = (source / source_norm[..., None]).to(x.dtype)

    at_once = max(1, SCORES_AT_ONCE // (len(x) * len(destinations)))
    parts = [(q @ unit.mT).max(dim=-1) for q in query.split(at_once, dim=1)]
    nearest = torch.cat([p.indices for p in parts], dim=1)
    if x.dtype == wide:
        return torch.cat([p.values for p in parts], dim=1) / source_norm, nearest
    row = torch.arange(len(x), device=x.device)[:, None]
    reached = (nearest + len(destinations) * row).flatten()
    reached = destination.flatten(0, 1).index_select(0, reached).view_as(source)
    dot = torch.linalg.vecdot(source.to(wide), reached.to(wide))
    return dot / (source_norm * destination_norm.gather(1, nearest)), nearest


def require_tiles(height: int, width: int, side: int | None) -> None:
    """Raise `ValueError` unless a window of this side fits a height x width token grid: it divides
    it, or is as large and compares all."""
    if side is not None and side < max(height, width) and (height % side or width % side):
        raise ValueError(
            f"window={side}: must divide the token grid, which is {height} x {width} here"
        )


def tiles(height: int, width: int, side: int, tokens: Tensor) -> Tensor:
    """Tokens of a height x width grid, tile by tile, as positions in `tokens`.

    Args:
        side: of a tile, in tokens.
        tokens: (n,) token indices, as many in each tile.

    Returns:
        (tiles, n / tiles) positions in `tokens`, those of a tile in order.

    Raises:
        ValueError: the grid is not a multiple of the tile.
    """
    require_tiles(height, width, side)
    tile = tokens // width // side * (width // side) + tokens % width // side
    return tile.argsort(stable=True).view(height // side * (width // side), -1)


def nearest_in_tiles(
    x: Tensor, sources: Tensor, destinations: Tensor, grid: tuple[int, int], side: int
) -> tuple[Tensor, Tensor]:
    """`nearest_destinations`, of those in the source's own tile of side x side tokens.

    With as many tiles as there are, each source is compared with so many times fewer destinations;
    pairs across the borders of tiles are missed.

    Args:
        sources, destinations: on the CPU, so that arranging them waits for no device.
    """
    (rows, _, channels), device = x.shape, x.device
    own_sources = tiles(*grid, side, sources)
    own_destinations = tiles(*grid, side, destinations)
    count, each = own_sources.shape
    tokens = torch.cat((sources[own_sources], destinations[own_destinations]), dim=1)
    tiled = x.index_select(1, tokens.flatten().to(device)).view(rows * count, -1, channels)
    position = torch.arange(side * side, device=device)
    best, nearest = nearest_destinations(tiled, position[:each], position[each:])
    tile = torch.arange(count, device=device)[:, None]
    nearest = own_destinations.to(device)[tile, nearest.view(rows, count, each)]
    back = own_sources.flatten().argsort().to(device)
    return best.view(rows, -1)[:, back], nearest.flatten(1)[:, back]


def blind_pairs(
    sources: Tensor,
    destinations: Tensor,
    width: int,
    pairing: str,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Pairs made without looking at the tokens: the controls of what similarity is worth.

    Args:
        sources, destinations: (S,), (D,) token indices on the CPU, both non-empty.
        width: of the token grid.
        pairing: "random", any destination and sources in any order; or "space", the destination
            nearest on the grid and the sources nearest to theirs first (ties as drawn).
        generator: CPU generator.

    Returns:
        nearest: (S,) positions in `destinations`, and order: (S,) positions in `sources`, the
        first to be merged first.
    """
    order = torch.randperm(len(sources), generator=generator)
    if pairing == "random":
        return torch.randint(len(destinations), (len(sources),), generator=generator), order
    y, x = destinations // width, destinations % width
    distances, nearest = [], []
    for part in sources.split(max(1, SCORES_AT_ONCE // len(destinations))):
        squared = (part[:, None] // width - y) ** 2 + (part[:, None] % width - x) ** 2
        least = squared.min(dim=1)
        distances.append(least.values)
        nearest.append(least.indices)
    by_distance = torch.cat(distances)[order].argsort(stable=True)
    return torch.cat(nearest), order[by_distance]


def match_blindly(
    x: Tensor, destinations: Tensor, select: Ratio, width: int, pairing: str, generator
) -> MergeMap:
    """A map of `blind_pairs`, the same in all rows. Arguments as there and in `match`."""
    rows, tokens = x.shape[:2]
    sources = source_tokens(tokens, destinations)
    nearest, order = blind_pairs(sources, destinations, width, pairing, generator)
    nearest, order = (t.to(x.device).expand(rows, -1) for t in (nearest, order))
    count = select.count(tokens, len(sources))
    sources, destinations = sources.to(x.device), destinations.to(x.device)
    return MergeMap.build(tokens, sources, destinations, nearest, order, count)


def source_tokens(tokens: int, destinations: Tensor) -> Tensor:
    """(S,) all tokens that are no destinations, in order, on the CPU."""
    is_source = torch.ones(tokens, dtype=torch.bool)
    is_source[destinations] = False
    return is_source.nonzero()[:, 0]


def match(
    x: Tensor,
    destinations: Tensor,
    select: Ratio | Threshold,
    grid: tuple[int, int] | None = None,
    window: int | None = None,
) -> tuple[MergeMap, Tensor]:
    """Match sources with destinations and choose the ones to merge, as many in each row.

    Each row merges its own most similar sources; among equally similar ones the first tokens.
    With a `Ratio` nothing here waits for the device; a `Threshold` waits for its count.

    Args:
        x: (B, N, C) tokens.
        destinations: (D,) token indices on the CPU; all other tokens are sources.
        select: how many merge.
        grid: height and width of the token grid; needed with a window.
        window: compare sources only with the destinations in their own window x window tokens;
            None, or one as large as the grid, compares all.

    Returns:
        The map, and the best similarities (B, S) of the sources in token order, fp32.

    Raises:
        ValueError: a window without its grid, or one that does not divide it.
    """
    if window is not None:
        require(is_integer(window) and window > 0, "window", window, "a positive integer, or None")
        given = grid is not None and grid[0] * grid[1] == x.shape[1]
        require(given, "grid", grid, f"(height, width) of {x.shape[1]} tokens with a window")
    (one,), best = match_images(x, destinations, select, 1, grid, window)
    return one, best


@torch.no_grad()
def match_images(
    x: Tensor,
    destinations: Tensor,
    select: Ratio | Threshold,
    images: int,
    grid: tuple[int, int] | None = None,
    window: int | None = None,
) -> tuple[tuple[MergeMap, ...], Tensor]:
    """`match` for the rows of each image apart, which may keep different numbers of tokens.

    Args:
        x: (B, N, C) tokens; row i shows image i % images.
        destinations, select, grid, window: as for `match`.

    Returns:
        The map of rows i, i + images, ... for each image i, and the best similarities (B, S).
    """
    tokens = x.shape[1]
    on_cpu = source_tokens(tokens, destinations), destinations
    sources, destinations = (part.to(x.device) for part in on_cpu)
    # Autocast would compare fp32 tokens in a lower precision.
    with torch.autocast(x.device.type, enabled=False):
        if window is None or window >= max(grid):
            best, nearest = nearest_destinations(x, sources, destinations)
        else:
            best, nearest = nearest_in_tiles(x, *on_cpu, grid, window)
    order = best.argsort(dim=1, descending=True, stable=True)
    counts = select.counts(best, tokens, images)
    maps = (
        MergeMap.build(
            tokens, sources, destinations, nearest[i::images], order[i::images], counts[i]
        )
        for i in range(images)
    )  # fmt: skip
    return tuple(maps), best
