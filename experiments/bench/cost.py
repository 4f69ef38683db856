"""What merging alone takes of an evaluation, which by itself varies by more than that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import ca_tome.patch
import tomesd.patch
from diffusers import UNet2DConditionModel
from tqdm import tqdm

import catome
from experiments.bench import unets, variants
from experiments.bench.measure import sample
from experiments.bench.unets import Measured, Subject
from experiments.timing.stopwatch import Stopwatch


def at_ratio(of: Subject, ratio: float, turns: int) -> Measured:
    """Ours and `tomesd` at a fixed ratio, and ours where nothing merges."""
    nothing = variants.by_catome(of.unet, catome.Ratio(0.0), catome.EveryStep(), of.finest)
    models = {
        variants.NOTHING: nothing,
        variants.TOMESD: variants.by_tomesd(of.unet, ratio, of.finest),
        **unets.ours(of, catome.Ratio(ratio)),
    }
    return time_merging(models, of, turns, f"{of.name} ratio {ratio}, merging alone")


def at_threshold(of: Subject, turns: int) -> Measured:
    """Ours and `ca_tome` at a threshold that about half of the sources pass."""
    threshold = variants.middle_threshold(of.unet, of.given, of.finest)
    select = catome.Threshold(threshold)
    models = {**unets.by_ca_tome(of, threshold), **unets.ours(of, select)}
    label = f"{of.name} threshold {threshold:.3f}, merging alone"
    seconds, facts = time_merging(models, of, turns, label)
    share = variants.kept_tokens(of.unet, of.given, select, of.finest)[1]
    return seconds, {**facts, "threshold": threshold, "merged share of sources": share}


def time_merging(
    models: dict[str, UNet2DConditionModel], of: Subject, turns: int, label: str
) -> Measured:
    """Seconds of each evaluation that pass in matching, merging, un-merging and what attaches them.

    Returns:
        With the fact "evaluation": the median of all seconds of an evaluation, by variant.
    """
    watch = Stopwatch(of.where)
    spent: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in models}
    whole: dict[str, list[float]] = {name: [] for name in models}
    with watched_peers(watch, spent), tqdm(total=turns * len(models), desc=label) as progress:
        for model in models.values():
            unets.run(model, of.given)  # warms up, and matches where a match is re-used
            watch_hooks(model, watch, spent)
        for _ in range(turns):
            for name, model in models.items():
                spent.clear()
                whole[name].append(sample(partial(unets.run, model, of.given), 1, watch))
                seconds[name].append(sum(spent))
                progress.update()
    return seconds, {"evaluation": {name: median(each) for name, each in whole.items()}}


def watched(call: Callable[..., Any], watch: Stopwatch, spent: list[float]) -> Callable[..., Any]:
    """The same call, which also adds its seconds to `spent`."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        watch.synchronise()
        start = watch.mark()
        result = call(*args, **kwargs)
        end = watch.mark()
        watch.synchronise()
        spent.append(watch.seconds(start, end))
        return result

    return timed


def watch_hooks(model: UNet2DConditionModel, watch: Stopwatch, spent: list[float]) -> None:
    """Ours merges in hooks, the peers note the grid in one; the model has no others."""
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key, hook in hooks.items():
                hooks[key] = watched(hook, watch, spent)


@contextmanager
def watched_peers(watch: Stopwatch, spent: list[float]) -> Iterator[None]:
    """The peers match by `compute_merge`, which returns what merges and un-merges."""
    modules = (tomesd.patch, ca_tome.patch)
    originals = [module.compute_merge for module in modules]

    def matching(original: Callable[..., Any]) -> Callable[..., Any]:
        timed = watched(original, watch, spent)
        return lambda *args: tuple(watched(call, watch, spent) for call in timed(*args))

    try:
        for module, original in zip(modules, originals, strict=True):
            module.compute_merge = matching(original)
        yield
    finally:
        for module, original in zip(modules, originals, strict=True):
            module.compute_merge = original


def evaluations(cell: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of evaluations that differ in what merging takes alone, and of one without it.

    Args:
        cell: finished, of one of the functions above.
    """
    own = {name: each for name, each in cell["seconds"].items() if name != variants.NOTHING}
    rest = median(cell["facts"]["evaluation"][name] - median(each) for name, each in own.items())
    turns = {name: [rest + seconds for seconds in each] for name, each in own.items()}
    return turns | {variants.FREE: [rest for _ in next(iter(own.values()))]}
