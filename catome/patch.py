"""Token merging on a Diffusers U-Net, by hooks alone.

No forward is copied and no module wrapped, so state dicts, attention processors, LoRA and saving
see the model they know; merged modules have a subclass that differs from theirs in identity alone,
for torch.compile (`OwnClass`). All state lives in the hooks' objects, which are attributes of the
U-Net's modules: a deep copy of a pipeline or U-Net gets its own clock and matches.
"""

from typing import Self

from torch import nn

from .checks import is_integer, require
from .clock import Clock
from .method import TokenMerging
from .pipelines import NO_ROWS, ROWS, class_that_runs
from .recorder import Record, Recorder
from .schedule import ByBlock
from .state import Link, Reference, State, counts_by_image

ATTRIBUTE = "_catome_handle"


def apply(
    model: object,
    method: TokenMerging,
    copies: int | None = None,
    record: Recorder | bool | None = None,
) -> "Handle":
    """Merge tokens in a Diffusers pipeline or U-Net until removed. Applying again replaces.

    To compile, apply first, then `unet.compile_repeated_blocks(fullgraph=True)`: matching stays
    outside, and the graphs of the first evaluation serve all others, whatever number merges.

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
        ValueError: `model` is neither, or is compiled already, no block lies within
            `max_downsample`, or `copies` is not positive or cannot be read from the pipeline, or a
            schedule is for a block that is not there.
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
    if pipeline is not None and counts_by_image(method):
        _require_rows(pipeline, copies)

    transformers = _transformers(unet)
    levels = sorted({level for level, _ in transformers})
    chosen = [t for level, t in transformers if level <= method.max_downsample]
    if not chosen:
        known = f"downsampling of the blocks there are: {', '.join(map(str, levels))}"
        raise ValueError(
            f"max_downsample={method.max_downsample}: no block would merge; "
            f"{known if levels else _what_it_has(unet)}"
        )
    from .hooks import refuse_chunks  # seconds, unless Diffusers was imported

    names = _block_names(unet, chosen)
    for block in names:
        refuse_chunks(method, block)
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
        from .hooks import Block, Evaluation, Grid

        self._state = State(pipeline, method, copies, recorder)
        self._unet = Reference(unet)
        self._blocks = []
        evaluation = Evaluation(self._state, self._blocks)
        self._hooks = [
            unet.register_forward_pre_hook(evaluation.begin, with_kwargs=True),
            unet.register_forward_hook(evaluation.end),
        ]
        if pipeline is not None:
            vars(pipeline)[ATTRIBUTE] = Link(self._state)
        setattr(unet, ATTRIBUTE, self)
        names = _block_names(unet, transformers)
        for transformer in transformers:
            blocks = [
                Block(self._state, names[module], module) for module in _blocks_of(transformer)
            ]
            self._blocks += blocks
            grid = Grid(blocks)
            self._hooks += [transformer.register_forward_pre_hook(grid.read, with_kwargs=True)]
            self._hooks += [hook for block in blocks for hook in block.hooks]

    @property
    def method(self) -> TokenMerging:
        return self._state.method

    @property
    def clock(self) -> Clock:
        return self._state.clock

    @property
    def recorder(self) -> Recorder | None:
        return self._state.recorder

    @property
    def matched(self) -> bool:
        return self._state.matched

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
        pipeline = self._state.pipeline()
        if pipeline is not None and vars(pipeline)[ATTRIBUTE].state is self._state:
            del vars(pipeline)[ATTRIBUTE]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.remove()


def _parts(model: object) -> tuple[object | None, nn.Module]:
    """The pipeline (None for a bare U-Net) and the U-Net, without torch.compile's wrapper."""
    pipeline, unet = (model, model.unet) if hasattr(model, "unet") else (None, model)
    is_module = isinstance(unet, nn.Module)
    require(
        is_module, "model", type(model).__name__, "a Diffusers pipeline with a unet, or a U-Net"
    )
    return pipeline, getattr(unet, "_orig_mod", unet)


def _require_rows(pipeline: object, copies: int | None) -> None:
    """Raise unless it will be known which rows belong to one image."""
    runs, name = class_that_runs(pipeline), type(pipeline).__name__
    if runs in NO_ROWS:
        raise ValueError(
            f"count='image': {name} {NO_ROWS[runs]}; pass count='batch' or select a Ratio"
        )
    if copies is None and runs not in ROWS:
        raise ValueError(
            f"copies=None: {name} does not tell whether it guides; pass copies, the rows of an "
            f"image (2 with guidance, 1 without), or count='batch'"
        )


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


def _what_it_has(unet: nn.Module) -> str:
    """What attends in a model that has no supported block, and what is supported."""
    parents = {child: module for module in unet.modules() for child in module.children()}

    def holder(module: nn.Module) -> nn.Module:
        parent = parents.get(module, unet)
        return holder(parent) if isinstance(parent, nn.ModuleList) else parent

    found = {}  # in order, each once
    for module in unet.modules():
        if "Attention" in type(module).__name__ and module in parents:
            inner = holder(module)
            found[f"{type(inner).__name__} in {type(holder(inner)).__name__}"] = None
    return (
        f"{type(unet).__name__} has attention in: {', '.join(found) or 'none'}; supported is "
        f"BasicTransformerBlock in Transformer2DModel, as in UNet2DConditionModel, "
        f"UNet3DConditionModel and UNetMotionModel"
    )


def _block_names(unet: nn.Module, transformers: list[nn.Module]) -> dict[nn.Module, str]:
    """{block: its name within the U-Net}, in the order in which they run."""
    names = {module: name for name, module in unet.named_modules()}
    return {b: names[b] for transformer in transformers for b in _blocks_of(transformer)}


def _blocks_of(transformer: nn.Module) -> list[nn.Module]:
    from diffusers.models.attention import BasicTransformerBlock

    return [b for b in transformer.transformer_blocks if isinstance(b, BasicTransformerBlock)]
