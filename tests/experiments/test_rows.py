"""From an experiment's YAML to the overrides of its rows."""

import subprocess
import sys

import pytest
from commands import ROOT
from omegaconf import OmegaConf

from experiments.common.errors import ConfigError
from experiments.runner import rows


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
    """One process composes them all, every row with the toy world and each kind with the others."""
    script = """
import sys
from pathlib import Path
from hydra import compose, initialize_config_dir
from experiments import rows
from experiments.config import check
root, seen = Path(sys.argv[1]), set()
with initialize_config_dir(str(root / "configs"), version_base="1.3"):
    for experiment in sorted(p.stem for p in (root / "configs/experiment").glob("*.yaml")):
        text = (root / f"configs/experiment/{experiment}.yaml").read_text()
        assert f"python run.py +experiment={experiment}" in text.splitlines()[1], experiment
        for benchmark in sorted(p.stem for p in (root / "configs/benchmark").glob("*.yaml")):
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
                check(compose("config", base + overrides))
            print(experiment, benchmark, len(expanded))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT)],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = {tuple(line.split()[:2]): int(line.split()[2]) for line in done.stdout.splitlines()}
    # The published tables have 7 rows; `fewer_steps` stands apart.
    assert counts["table_adaptive", "sd15_imagenet"] == 8
    assert counts["table_caching", "sd15_imagenet"] == 8
