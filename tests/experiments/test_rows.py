"""From an experiment's YAML to the overrides of its rows."""

from itertools import product

import pytest
from commands import ROOT
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.accelerators.build import build_method
from experiments.common.errors import ConfigError
from experiments.runner import rows
from experiments.settings.check import check


def expand(templates, **more):
    return rows.expand(
        OmegaConf.create({"experiment": {"rows": templates}, "rows": None, "sweep": {}, **more})
    )


def test_products_in_order_and_types_kept():
    expanded = expand([
        {"row": "baseline", "method": "none"},
        {"row": "T{t}_{k}", "each": {"t": [0.5, 0.7], "k": [5, "config3"]}, "method": "ca_tome",
         "method.threshold": "{t}", "method.refresh": "{k}", "method.label": "at {t}"},
    ])  # fmt: skip
    assert list(expanded) == ["baseline", "T0.5_5", "T0.5_config3", "T0.7_5", "T0.7_config3"]
    assert expanded["T0.7_5"] == [
        "row=T0.7_5", "method=ca_tome", "method.threshold=0.7", "method.refresh=5",
        "method.label=at 0.7",
    ]  # fmt: skip


def test_swept_lists_become_overrides():
    expanded = expand([{"row": "c{s}", "each": {"s": [[0, 8, 11]]}, "method.refresh": "{s}"}])
    assert expanded == {"c0-8-11": ["row=c0-8-11", "method.refresh=[0,8,11]"]}


def test_selection_by_name():
    templates = [{"row": "a"}, {"row": "b"}, {"row": "c"}]
    assert list(expand(templates, rows=["c", "a"])) == ["a", "c"]
    with pytest.raises(ConfigError, match=r"rows=\['d'\]: must be among a, b, c"):
        expand(templates, rows=["d"])


def test_a_name_that_occurs_twice():
    with pytest.raises(ConfigError, match="occurs twice"):
        expand([{"row": "a"}, {"row": "a"}])


@pytest.mark.parametrize("text", ["plain", "Fewer steps", "it's", "a,b", "x=1", "${y}", "{a: 1}"])
def test_quoted_texts_come_back(text):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(f"key={rows.quote(text)}")
    assert parsed.value() == text


def test_every_experiment_composes_with_every_benchmark():
    """Every row with the toy world and each kind of row with the other benchmarks."""
    counts, seen = {}, set()
    names = {
        group: sorted(p.stem for p in (ROOT / "configs" / group).glob("*.yaml"))
        for group in ("experiment", "benchmark")
    }
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        for experiment, benchmark in product(names["experiment"], names["benchmark"]):
            text = (ROOT / f"configs/experiment/{experiment}.yaml").read_text(encoding="utf-8")
            assert f"python run.py +experiment={experiment}" in text.splitlines()[1], experiment
            base = [f"+experiment={experiment}", f"benchmark={benchmark}", "device=cpu"]
            cfg = compose("config", base)
            if cfg.experiment.observation is not None:
                check(cfg)
                continue
            expanded = rows.expand(cfg)
            for expected in ("baseline", "fewer_steps"):
                assert any(name.startswith(expected) for name in expanded), (experiment, expected)
            # Schedules that are found first have no file yet.
            composable = [o for o in expanded.values() if not any(".json" in text for text in o)]
            for overrides in composable:
                kind = benchmark, *sorted(o for o in overrides if o.startswith("method="))
                if benchmark != "toy" and kind in seen:
                    continue
                seen.add(kind)
                row = compose("config", base + overrides)
                check(row)
                build_method(row)
            counts[experiment, benchmark] = len(expanded)
    # The published tables have 7 rows; `fewer_steps` stands apart.
    assert counts["table_adaptive", "sd15_imagenet"] == 8
    assert counts["table_caching", "sd15_imagenet"] == 8
