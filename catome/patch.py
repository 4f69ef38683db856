"""Token merging on a Diffusers U-Net, by hooks alone.

No forward is copied and no module wrapped, so state dicts, attention processors, LoRA and saving
see the model they know. All state lives in the hooks' objects, which are attributes of the U-Net's
modules: a deep copy of a pipeline or U-Net gets its own clock and matches.
"""

import weakref
from typing import Self

import torch
from torch import Tensor, nn

from .checks import is_integer, require
from .clock import Clock
from .matching import destination_tokens, match_blindly, match_images, pattern_generator
from .merge_map import MergeMap
from .method import TokenMerging
from .recorder import Record, Recorder
from .schedule import ByBlock
from .selection import Threshold

ATTRIBUTE = "_catome_handle"


def apply(
    model: object,
    method: TokenMerging,
    copies: int | None = None,
    record: Recorder | bool | None = None,
) -> "Handle":
    """Merge tokens in a Diffusers pipeline or U-Net until removed. Applying again replaces.

    Args:
        model: a pipeline with a `unet`, or a U-Net with `BasicTransformerBlock`s in
            `Transformer2DModel`s. A pipeline tells when a generation begins (its scheduler) and
            whether it guides; apply to the pipeline that will be called. A bare U-Net is watched
            as `Clock` describes.
        method: what to merge and when.
        copies: rows of the U-Net's batch that belong to one image, for `count="image"`: row i and
            row i + B / copies, as classifier-free guidance stacks them. By default read from the
            pipeline at every evaluation, and 1 on a bare U-Net.
        record: a `Recorder`, or True for one that counts.

    Returns:
        The handle, also a context manager that removes on exit.

    Raises:
        ValueError: `model` is neither, no block lies within `max_downsample`, or `copies` is not
            positive or cannot be read from the pipeline, or a schedule is for a block that is not
            there.
        ImportError: Diffusers is not installed.
    """
    require(isinstance(method, TokenMerging), "method", method, "a TokenMerging")
    require(copies is None or (is_integer(copies) and copies >= 1), "copies", copies, "1, 2, ...")
    require(
        record is None or isinstance(record, (bool, Recorder)),
        "record",
        record,
        "a Recorder or bool",
    )
    pipeline, unet = _parts(model)
    if _is_compiled(getattr(model, "unet", model)):
        raise ValueError("unet is compiled: apply token merging before torch.compile")
    tells_guidance = hasattr(type(pipeline), "do_classifier_free_guidance")
    needs_copies = isinstance(method.select, Threshold) and method.count == "image"
    if pipeline is not None and copies is None and needs_copies and not tells_guidance:
        name = type(pipeline).__name__
        raise ValueError(f"copies=None: {name} does not tell whether it guides; pass 1 or 2")

    transformers = _transformers(unet)
    levels = sorted({level for level, _ in transformers})
    chosen = [t for level, t in transformers if level <= method.max_downsample]
    if not chosen:
        known = f"levels {', '.join(map(str, levels))}" if levels else "none"
        raise ValueError(
            f"max_downsample={method.max_downsample}: no block would merge; downsampling of the "
            f"blocks there are: {known}"
        )
    names = _block_names(unet, chosen)
    if isinstance(method.refresh, ByBlock):
        unknown = sorted(set(method.refresh.schedules) - set(names.values()))
        if unknown:
            raise ValueError(
                f"schedules={unknown[0]}: no such block; the blocks are {', '.join(names.values())}"
            )
    remove(model)
    recorder = Recorder() if record is True else record or None
    return Handle(pipeline, unet, chosen, method, copies, recorder)


def remove(model: object) -> None:
    """Take token merging off a pipeline or U-Net, if there is any."""
    handle = vars(_parts(model)[1]).pop(ATTRIBUTE, None)
    if handle is not None:
        handle.remove()


def get_handle(model: object) -> "Handle | None":
    """The handle of a patched pipeline or U-Net (for instance of a deep copy), or None."""
    return vars(_parts(model)[1]).get(ATTRIBUTE)


class Handle:
    """Token merging on one U-Net: its clock, the matches of its blocks, its records.

    Attributes:
        method: the `TokenMerging` applied.
        clock: counts evaluations: `clock.step`, `clock.generation`.
        recorder: the `Recorder`, or None.
        matched: whether any block matched anew in the latest evaluation.
        blocks: names of the patched blocks within the U-Net.
    """

    def __init__(
        self,
        pipeline: object | None,
        unet: nn.Module,
        transformers: list[nn.Module],
        method: TokenMerging,
        copies: int | None,
        recorder: Recorder | None,
    ):
        self.method = method
        self.clock = Clock()
        self.recorder = recorder
        self.matched = False
        self._told_copies = copies
        self._pipeline = _Reference(pipeline)
        self._unet = _Reference(unet)
        self._blocks = []
        self._hooks = [unet.register_forward_pre_hook(self._begin_evaluation, with_kwargs=True)]
        setattr(unet, ATTRIBUTE, self)
        names = _block_names(unet, transformers)
        for transformer in transformers:
            blocks = [
                _Block(self, names[module], module) for module in _transformer_blocks(transformer)
            ]
            self._blocks += blocks
            grid = _Grid(blocks)
            self._hooks += [transformer.register_forward_pre_hook(grid.read, with_kwargs=True)]
            self._hooks += [hook for block in blocks for hook in block.hooks]

    @property
    def blocks(self) -> list[str]:
        return [block.name for block in self._blocks]

    @property
    def records(self) -> list[Record]:
        """What the recorder holds; empty without one."""
        return [] if self.recorder is None else self.recorder.records

    def new_generation(self) -> None:
        """The next evaluation is the first of a new generation.

        Needed only where the clock cannot tell: two one-step generations on a bare U-Net, say.
        """
        self.clock.new_generation()

    def clear(self) -> None:
        """Forget all matches, also those that `cache="official"` would carry over."""
        for block in self._blocks:
            block.clear()

    def remove(self) -> None:
        """Take the hooks off; the U-Net is as it was before. Harmless when repeated."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.clear()
        unet = self._unet()
        if unet is not None and vars(unet).get(ATTRIBUTE) is self:
            delattr(unet, ATTRIBUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.remove()

    def images(self, rows: int) -> int:
        """How many images the rows of a batch belong to."""
        copies = self._told_copies
        if copies is None:
            # Pipelines know whether they guide once they were called, and may stop midway.
            guides = getattr(self._pipeline(), "do_classifier_free_guidance", False)
            copies = 2 if guides and rows % 2 == 0 else 1
        if rows % copies:
            raise ValueError(f"copies={copies}: the U-Net was given {rows} rows, not a multiple")
        return rows // copies

    def _begin_evaluation(self, unet: nn.Module, args: tuple, kwargs: dict) -> None:
        timestep = kwargs["timestep"] if "timestep" in kwargs else args[1]
        scheduler = getattr(self._pipeline(), "scheduler", None)
        if self.clock.tick(timestep, scheduler) and self.method.cache == "fresh":
            self.clear()
        self.matched = False


class _Grid:
    """Tells the blocks of a Transformer2DModel the height and width of their token grid."""

    def __init__(self, blocks: list["_Block"]):
        self.blocks = blocks

    def read(self, transformer: nn.Module, args: tuple, kwargs: dict) -> None:
        height, width = _hidden_states(args, kwargs).shape[-2:]
        for block in self.blocks:
            block.grid = (height, width)


class _Block:
    """The hooks of one BasicTransformerBlock and the match it holds."""

    def __init__(self, handle: Handle, name: str, block: nn.Module):
        self.handle = handle
        self.name = name
        self.grid = None
        self.inside = False  # a module is called from its own hook
        self.output = None  # what that made
        self.clear()
        self.hooks = [block.register_forward_pre_hook(self.enter, with_kwargs=True)]
        for merged in handle.method.merge:
            module = getattr(block, merged)
            if module is not None:  # blocks without cross-attention have no attn2
                self.hooks += [
                    module.register_forward_pre_hook(self.shorten, with_kwargs=True),
                    module.register_forward_hook(self.restore),
                ]

    def clear(self) -> None:
        self.held = None  # the last match, see `match_images`
        self.held_for = None  # the grid and batch it was made for
        self.maps = None  # the match in use; None leaves the tokens alone

    def enter(self, block: nn.Module, args: tuple, kwargs: dict) -> None:
        """Choose the match for this evaluation: the one held, or a new one."""
        x = _hidden_states(args, kwargs)
        handle, method, best, matched = self.handle, self.handle.method, None, False
        if not method.select.merges_nothing:
            shape = (len(x), *self.grid)
            matched = self.held_for != shape or method.matches_at(handle.clock.step, self.name)
            if matched:
                self.held, best = self._match(x)
                self.held_for = shape
            elif self.held is not None and self.held[0].device != x.device:
                self.held = tuple(one.to(x.device) for one in self.held)
        merges = self.held is not None and any(one.count for one in self.held)
        self.maps = self.held if merges else None
        handle.matched |= matched
        if handle.recorder is not None:
            self._record(handle, x, matched, best)

    def shorten(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """Merge the tokens given to a module."""
        if self.maps is None or self.inside:
            return None
        if kwargs.get("attention_mask") is not None and kwargs.get("encoder_hidden_states") is None:
            raise ValueError("attention_mask: must be None where self-attention merges tokens")
        if len(self.maps) > 1:
            self.output = self._image_by_image(module, args, kwargs)
            # The module itself still runs: on one token.
            first = _rows(args, kwargs, len(_hidden_states(args, kwargs)), slice(0, 1))
            return _with_hidden_states(*first, _hidden_states(*first)[:, :1])
        x = self.maps[0].merge(_hidden_states(args, kwargs))
        return _with_hidden_states(args, kwargs, x)

    def restore(self, module: nn.Module, args: tuple, output: Tensor) -> Tensor:
        """Give every merged token its destination's output."""
        if self.maps is None or self.inside:
            return output
        if len(self.maps) > 1:
            output, self.output = self.output, None
            return output
        return self.maps[0].unmerge(output)

    def _image_by_image(self, module: nn.Module, args: tuple, kwargs: dict) -> Tensor:
        """A module's output where images keep different numbers of tokens.

        Each image by itself, so that kernels see its own length and its result is the same to the
        bit whatever the other images are; padding to the longest would be slower too.
        """
        batch, images = len(_hidden_states(args, kwargs)), len(self.maps)
        outputs = []
        self.inside = True
        try:
            for i, own in enumerate(self.maps):
                part = _rows(args, kwargs, batch, slice(i, None, images))
                short = own.merge(_hidden_states(*part))
                part_args, part_kwargs = _with_hidden_states(*part, short)
                outputs.append(own.unmerge(module(*part_args, **part_kwargs)))
        finally:
            self.inside = False
        return torch.stack(outputs, dim=1).flatten(0, 1)  # row i shows image i % images

    def _match(self, x: Tensor) -> tuple[tuple[MergeMap, ...] | None, Tensor | None]:
        method = self.handle.method
        generator = pattern_generator(method.seed, self.handle.clock.step, self.name)
        drawn = generator if method.destinations == "random" else None
        destinations = destination_tokens(*self.grid, method.stride, drawn)
        if len(destinations) == 0:  # the grid is smaller than a cell
            return None, None
        if method.pairing != "similarity":
            width = self.grid[1]
            blind = match_blindly(x, destinations, method.select, width, method.pairing, generator)
            return (blind,), None
        adaptive = isinstance(method.select, Threshold) and method.count == "image"
        images = self.handle.images(len(x)) if adaptive else 1
        return match_images(x, destinations, method.select, images)

    def _record(self, handle: Handle, x: Tensor, matched: bool, best: Tensor | None) -> None:
        (height, width), stride = self.grid, handle.method.stride
        cells = (height // stride) * (width // stride)
        similarities = pairs = None
        if best is not None and handle.recorder.similarities:
            similarities = best.cpu()
        if matched and self.held is not None and handle.recorder.pairs:
            pairs = torch.stack([one.assignment for one in self.held], dim=1).flatten(0, 1)
            pairs = pairs.to("cpu", torch.int32)
        kept = (x.shape[1],) * len(x)
        if self.maps is not None:
            kept = tuple(one.length for one in self.maps) * (len(x) // len(self.maps))
        handle.recorder.add(
            Record(
                generation=handle.clock.generation,
                step=handle.clock.step,
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


class _Reference:
    """A weak reference that follows deep copies and does not survive pickling.

    The U-Net must not own its pipeline. If both are copied, the copy refers to the copy; if the
    U-Net is copied alone, the copy refers to nothing and is a bare U-Net.
    """

    def __init__(self, target: object | None = None):
        self._target = None if target is None else weakref.ref(target)

    def __call__(self) -> object | None:
        return None if self._target is None else self._target()

    def __deepcopy__(self, memo: dict) -> "_Reference":
        target = self()
        return _Reference(None if target is None else memo.get(id(target)))

    def __reduce__(self) -> tuple:
        return _Reference, ()


def _hidden_states(args: tuple, kwargs: dict) -> Tensor:
    return args[0] if args else kwargs["hidden_states"]


def _with_hidden_states(args: tuple, kwargs: dict, x: Tensor) -> tuple[tuple, dict]:
    return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})


def _rows(args: tuple, kwargs: dict, batch: int, rows: slice) -> tuple[tuple, dict]:
    """Arguments of a module for some rows of its batch."""

    def own(value: object) -> object:
        whole = isinstance(value, Tensor) and value.ndim > 0 and len(value) == batch
        return value[rows] if whole else value

    return tuple(map(own, args)), {key: own(value) for key, value in kwargs.items()}


def _parts(model: object) -> tuple[object | None, nn.Module]:
    """The pipeline (None for a bare U-Net) and the U-Net, without torch.compile's wrapper."""
    pipeline, unet = (model, model.unet) if hasattr(model, "unet") else (None, model)
    is_module = isinstance(unet, nn.Module)
    require(
        is_module, "model", type(model).__name__, "a Diffusers pipeline with a unet, or a U-Net"
    )
    return pipeline, getattr(unet, "_orig_mod", unet)


def _is_compiled(unet: nn.Module) -> bool:
    in_place = any(m._compiled_call_impl is not None for m in unet.modules())
    return in_place or hasattr(unet, "_orig_mod")


def _transformers(unet: nn.Module) -> list[tuple[int, nn.Module]]:
    """(downsampling, Transformer2DModel) of all transformers that see a token grid."""
    try:
        from diffusers.models.transformers.transformer_2d import Transformer2DModel
    except ImportError as error:
        raise ImportError("patching needs Diffusers: pip install diffusers") from error

    def within(block: nn.Module) -> list[tuple[int, nn.Module]]:
        return [
            (level, m)
            for m in block.modules()
            if isinstance(m, Transformer2DModel) and m.is_input_continuous
        ]

    found, level = [], 1
    for block in getattr(unet, "down_blocks", ()):
        found += within(block)
        level *= 2 if getattr(block, "downsamplers", None) else 1
    if getattr(unet, "mid_block", None) is not None:
        found += within(unet.mid_block)
    for block in getattr(unet, "up_blocks", ()):
        found += within(block)
        level //= 2 if getattr(block, "upsamplers", None) else 1
    return found


def _block_names(unet: nn.Module, transformers: list[nn.Module]) -> dict[nn.Module, str]:
    """{block: its name within the U-Net}, in the order in which they run."""
    names = {module: name for name, module in unet.named_modules()}
    return {b: names[b] for transformer in transformers for b in _transformer_blocks(transformer)}


def _transformer_blocks(transformer: nn.Module) -> list[nn.Module]:
    from diffusers.models.attention import BasicTransformerBlock

    return [b for b in transformer.transformer_blocks if isinstance(b, BasicTransformerBlock)]
