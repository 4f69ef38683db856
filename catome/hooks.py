"""What the hooks of a patched U-Net do.

torch.compile must not trace what differs between evaluations (their number, the random
destinations, whether blocks match), or it would compile anew at each: those hooks run outside, and
hand the hooks inside a match to use, which are tensor operations alone. A module with its hooks is
compiled by the frame, so that a compiled block stays one graph (`fullgraph=True`).
"""

import weakref
from functools import cache

import torch
from torch import Tensor, nn

from .matching import destination_tokens, match_blindly, match_images, pattern_generator
from .merge_map import MergeMap
from .method import TokenMerging
from .recorder import Record
from .state import State, counts_by_image


class Evaluation:
    """The hook of the U-Net."""

    def __init__(self, state: State, blocks: list["Block"]):
        self.state = state
        self.blocks = blocks

    @torch.compiler.disable
    def begin(self, unet: nn.Module, args: tuple, kwargs: dict) -> None:
        refuse_tracing()
        sample = kwargs["sample"] if "sample" in kwargs else args[0]
        timestep = kwargs["timestep"] if "timestep" in kwargs else args[1]
        refuse_masks(self.state.method, kwargs.get("cross_attention_kwargs"))
        if self.state.begin_evaluation(sample, timestep):
            for block in self.blocks:
                block.clear()

    @torch.compiler.disable
    def end(self, unet: nn.Module, args: tuple, output: tuple) -> None:
        if torch.is_grad_enabled():
            self.state.end_evaluation(output[0])


class Grid:
    """Tells the blocks of a Transformer2DModel the height and width of their token grid."""

    def __init__(self, blocks: list["Block"]):
        self.blocks = blocks

    @torch.compiler.disable
    def read(self, transformer: nn.Module, args: tuple, kwargs: dict) -> None:
        height, width = _hidden_states(args, kwargs).shape[-2:]
        for block in self.blocks:
            block.grid = (height, width)


class OwnClass:
    """Keeps graphs that were compiled of modules without hooks away from one with hooks.

    torch.compile re-uses a graph for all modules that pass its guards. Whether there are hooks it
    does not guard where there were none (`skip_nnmodule_hook_guards`), so that merging would
    silently be left out once a U-Net without it was compiled. The class it does guard; this one is
    the module's own but for its identity. (An own `forward` would be guarded too, and keep the
    module's weights until the garbage collector comes.)
    """

    def __init__(self, module: nn.Module):
        self.module = weakref.ref(module)
        module.__class__ = merging_class(type(module))

    def remove(self) -> None:
        module = self.module()
        if module is not None and type(module) is merging_class(type(module).__base__):
            module.__class__ = type(module).__base__

    # As weak references are neither copied nor pickled; the module is, before or after.
    def __getstate__(self) -> nn.Module | None:
        return self.module()

    def __setstate__(self, module: nn.Module) -> None:
        self.module = weakref.ref(module)


@cache
def merging_class(original: type[nn.Module]) -> type[nn.Module]:
    """A subclass that is `original` in all but identity, and by its name."""
    names = {name: getattr(original, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(original.__name__, (original,), {**names, "__reduce_ex__": _reduce})


def _reduce(module: nn.Module, protocol: int) -> tuple:
    """Pickles by the class that can be imported."""
    _, _, state, *rest = object.__reduce_ex__(module, max(protocol, 2))
    return _new_merging, (type(module).__base__,), state, *rest


def _new_merging(original: type[nn.Module]) -> nn.Module:
    own = merging_class(original)
    return own.__new__(own)


class Block:
    """The hooks of one BasicTransformerBlock and the match it holds."""

    def __init__(self, state: State, name: str, block: nn.Module):
        self.state = state
        self.name = name
        self.grid = None
        self.inside = False  # a module is called from its own hook
        self.outputs = []  # what that made
        self.clear()
        self.hooks = [block.register_forward_pre_hook(self.enter, with_kwargs=True)]
        for merged in state.method.merge:
            module = getattr(block, merged)
            if module is not None:  # blocks without cross-attention have no attn2
                self.hooks += [
                    module.register_forward_pre_hook(self.shorten, with_kwargs=True),
                    module.register_forward_hook(self.restore),
                    OwnClass(module),
                ]

    def clear(self) -> None:
        self.held = {}  # {rows, height, width, part of the step: its last match}
        self.maps = None  # the match in use; None leaves the tokens alone

    @torch.compiler.disable
    def enter(self, block: nn.Module, args: tuple, kwargs: dict) -> None:
        """Choose the match for this evaluation: the one held, or a new one."""
        x = _hidden_states(args, kwargs)
        state, method, best, matched = self.state, self.state.method, None, False
        used = state.recomputed(x)
        if used is not None:
            self.maps = used[self.name]
            return
        refuse_chunks(method, block)
        held = None
        if not method.select.merges_nothing:
            place = (len(x), *self.grid, state.part)
            matched = place not in self.held or method.matches_at(state.clock.step, self.name)
            if matched:
                held, best = self._match(x)
            else:
                held = self.held[place]
                if held is not None and held[0].device != x.device:
                    held = tuple(one.to(x.device) for one in held)
            self.held[place] = held
        merges = held is not None and any(one.count for one in held)
        self.maps = state.used[self.name] = held if merges else None
        state.matched |= matched
        if state.recorder is not None:
            self._record(x, held, matched, best)

    def shorten(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """Merge the tokens given to a module."""
        if self.maps is None or self.inside:
            return None
        if kwargs.get("attention_mask") is not None and kwargs.get("encoder_hidden_states") is None:
            raise ValueError("attention_mask: must be None where self-attention merges tokens")
        if len(self.maps) > 1:
            args, kwargs = self._all_but_the_last(module, args, kwargs)
        x = self.maps[-1].merge(_hidden_states(args, kwargs))
        return _with_hidden_states(args, kwargs, x)

    def restore(self, module: nn.Module, args: tuple, output: Tensor) -> Tensor:
        """Give every merged token its destination's output."""
        if self.maps is None or self.inside:
            return output
        output = self.maps[-1].unmerge(output)
        if len(self.maps) > 1:
            outputs, self.outputs = [*self.outputs, output], []
            output = torch.stack(outputs, dim=1).flatten(0, 1)  # row i shows image i % images
        return output

    def _all_but_the_last(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Call a module for each image but the last where they keep different numbers of tokens,
        and return its arguments for the last.

        Each image by itself, so that kernels see its own length and its result is the same to the
        bit whatever the other images are; padding to the longest would be slower too.
        """
        batch, images = len(_hidden_states(args, kwargs)), len(self.maps)
        self.outputs, self.inside = [], True
        try:
            for i, own in enumerate(self.maps[:-1]):
                part = _rows((args, kwargs), batch, slice(i, None, images))
                short = own.merge(_hidden_states(*part))
                part_args, part_kwargs = _with_hidden_states(*part, short)
                self.outputs.append(own.unmerge(module(*part_args, **part_kwargs)))
        finally:
            self.inside = False
        return _rows((args, kwargs), batch, slice(images - 1, None, images))

    # A match made while sampling in inference mode may be used, and saved, by training.
    @torch.inference_mode(False)
    @torch.no_grad()
    def _match(self, x: Tensor) -> tuple[tuple[MergeMap, ...] | None, Tensor | None]:
        method = self.state.method
        generator = pattern_generator(method.seed, self.state.clock.step, self.name)
        drawn = generator if method.destinations == "random" else None
        destinations = destination_tokens(*self.grid, method.stride, drawn)
        if len(destinations) == 0:  # the grid is smaller than a cell
            return None, None
        if method.pairing != "similarity":
            width = self.grid[1]
            blind = match_blindly(x, destinations, method.select, width, method.pairing, generator)
            return (blind,), None
        images = len(x) // self.state.copies if counts_by_image(method) else 1
        return match_images(x, destinations, method.select, images, self.grid, method.window)

    def _record(
        self,
        x: Tensor,
        held: tuple[MergeMap, ...] | None,
        matched: bool,
        best: Tensor | None,
    ) -> None:
        state = self.state
        (height, width), stride = self.grid, state.method.stride
        cells = (height // stride) * (width // stride)
        similarities = pairs = None
        if best is not None and state.recorder.similarities:
            similarities = best.cpu()
        if matched and held is not None and state.recorder.pairs:
            pairs = torch.stack([one.assignment for one in held], dim=1).flatten(0, 1)
            pairs = pairs.to("cpu", torch.int32)
        kept = (x.shape[1],) * len(x)
        if self.maps is not None:
            kept = tuple(one.length for one in self.maps) * (len(x) // len(self.maps))
        state.recorder.add(
            Record(
                generation=state.clock.generation,
                step=state.clock.step,
                block=self.name,
                matched=matched,
                grid=self.grid,
                sources=x.shape[1] - cells if cells else 0,
                tokens_in=x.shape[1],
                tokens_out=kept,
                similarities=similarities,
                pairs=pairs,
            )
        )


def _hidden_states(args: tuple, kwargs: dict) -> Tensor:
    return args[0] if args else kwargs["hidden_states"]


def _with_hidden_states(args: tuple, kwargs: dict, x: Tensor) -> tuple[tuple, dict]:
    return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})


def _rows(given: object, batch: int, rows: slice) -> object:
    """Arguments of a module for some rows of its batch, however they are nested."""
    if isinstance(given, Tensor):
        return given[rows] if given.ndim > 0 and len(given) == batch else given
    if isinstance(given, dict):
        return type(given)((key, _rows(value, batch, rows)) for key, value in given.items())
    if isinstance(given, (tuple, list)):
        own = [_rows(value, batch, rows) for value in given]
        return type(given)(*own) if hasattr(given, "_fields") else type(given)(own)
    return given


def refuse_tracing() -> None:
    """Raise where a graph would keep this evaluation's match for all others."""
    exporting = getattr(torch.compiler, "is_exporting", None)  # torch 2.7
    for traced, by in (
        (torch.jit.is_tracing(), "torch.jit.trace"),
        (exporting is not None and exporting(), "torch.export"),
    ):
        if traced:
            raise RuntimeError(f"{by}: cannot hold token merging; catome.remove it before")


def refuse_masks(method: TokenMerging, attention: dict | None) -> None:
    """Raise where cross-attention would lay masks over a shortened sequence."""
    given = attention is not None and attention.get("ip_adapter_masks") is not None
    if given and "attn2" in method.merge:
        raise ValueError("merge: must be without 'attn2' where ip_adapter_masks are given")


def refuse_chunks(method: TokenMerging, block: nn.Module) -> None:
    """Raise where a block hands its feed-forward parts of a sequence."""
    if "ff" in method.merge and block._chunk_size is not None:
        raise ValueError(
            "merge: must be without 'ff' with enable_forward_chunking; "
            "disable_forward_chunking, or merge other modules"
        )
