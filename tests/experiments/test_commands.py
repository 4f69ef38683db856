"""The commands of the README, run as users run them, at few steps."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from commands import QUICK, ROOT, run_command
from PIL import Image

from experiments.painting.store import read_record


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def ablation(results):
    """One run of an experiment, looked at by several tests."""
    done = run_command(*arguments(results))
    return done, results / "toy" / "ablation_cache"


def arguments(results, *more):
    base = ["+experiment=ablation_cache", "sweep.intervals=[1,5]", f"results={results}"]
    return [*base, *QUICK, *more]


def images(results):
    return sorted((results / "images").rglob("*.png"))


ROWS = ["baseline", "T0.9_every1", "T0.9_every5", "fewer_steps"]


def row_names(folder):
    return json.loads((folder / "experiment.json").read_text())["rows"]


def test_an_experiment_prints_and_writes_its_table(ablation):
    done, folder = ablation
    assert done.returncode == 0, done.stderr
    names = row_names(folder)
    assert len(names) == 4
    assert names[0] == "baseline"
    assert names[-1] == "fewer_steps"
    for label in ("Baseline", "CA-ToMe", "every 5", "Fewer steps", "PSNR", "CLIP (toy)"):
        assert label in done.stdout, done.stdout
    with (folder / "table.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["row"] for row in table] == names
    for suffix in ("md", "tex"):
        assert (folder / f"table.{suffix}").stat().st_size > 200
    plots = {path.suffix for path in (folder / "plots").iterdir()}
    assert plots == {".png", ".pdf"}
    timing = json.loads((folder / "timing.json").read_text())
    assert set(timing["rows"]) == set(names)
    baseline = timing["rows"]["baseline"]
    assert baseline["evaluations"] == 5  # PLMS: 4 steps, one evaluated twice
    assert baseline["speedup"] == 1
    assert baseline["gflops_per_image"] > timing["rows"][names[2]]["gflops_per_image"] > 0
    assert timing["environment"]["attention_backend"] == "fused"


def test_images_lie_under_their_painter_with_their_record(ablation, results):
    _, folder = ablation
    paths = images(results)
    assert len(paths) == 2 * 4
    row = json.loads((folder / "rows" / f"{row_names(folder)[2]}.json").read_text())
    own = [p for p in paths if row["painter"] in p.parts]
    assert len(own) == 2
    record = read_record(own[0])
    assert 0 < record["merged_share"] <= 1
    assert record["versions"]["torch"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {record["prompt"]} <= {p["text"] for p in manifest["prompts"]}
    with Image.open(own[0]) as image:
        assert image.size == (128, 128)


def test_a_second_run_paints_nothing_and_a_longer_list_only_what_is_new(ablation, results):
    before = {path: path.stat().st_mtime_ns for path in images(results)}
    again = run_command(*arguments(results, "stages=[generate,evaluate,report]"))
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in images(results)} == before
    longer = run_command(
        *arguments(results, "prompts.limit=3", "stages=[generate]", "rows=[baseline]")
    )
    assert longer.returncode == 0, longer.stderr
    after = {path: path.stat().st_mtime_ns for path in images(results)}
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()


def test_report_alone_needs_no_model(ablation, results):
    done = run_command(
        *arguments(results, "stages=[report]", "model.path=/nowhere", "rows=[baseline]")
    )
    assert done.returncode == 0, done.stderr
    assert "Baseline" in done.stdout
    assert "CA-ToMe" not in done.stdout
    restored = run_command(*arguments(results, "stages=[report]"))
    assert restored.returncode == 0, restored.stderr


def test_one_cell_and_its_plain_sweep(results):
    done = run_command("-m", "method=none,tome", "method.label=Mine", "seed=7",
                       f"results={results / 'cells'}", *QUICK)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Mine") >= 2
    cells = sorted(p.name for p in (results / "cells" / "toy" / "cell").iterdir())
    assert [name.split("-")[0] for name in cells] == ["none", "tome"]


def test_debug_row(results):
    done = run_command(*arguments(results / "debug", "debug=row", "rows=[T0.9_every5]",
                                  "sweep.thresholds=[0.9]"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    matches = [line for line in done.stdout.splitlines() if line.startswith("evaluation ")]
    assert matches
    assert all("->" in line for line in matches)
    assert {line.split()[1] for line in matches} == {"0"}  # every 5 of 5: the first only
    assert len([x for x in done.stdout.splitlines() if x.endswith(".png")]) == 2


MINE = '''
from experiments.accelerators.base import Method


class Mine(Method):
    """Fails on request, else changes nothing."""

    revision = 1

    def __init__(self, name, fails=False):
        super().__init__(name)
        self.fails = fails

    def attach(self, pipe, record=False, on_match=None):
        if self.fails:
            raise RuntimeError("mine is broken")
        return super().attach(pipe, record, on_match)
'''


@pytest.fixture
def outside(tmp_path):
    """A user's folder: a method and an experiment of their own, no fork."""
    (tmp_path / "my_package.py").write_text(MINE)
    for group in ("method", "experiment"):
        (tmp_path / "configs" / group).mkdir(parents=True)
    (tmp_path / "configs" / "method" / "mine.yaml").write_text(
        "_target_: my_package.Mine\nname: mine\nfails: false\n"
    )
    (tmp_path / "configs" / "experiment" / "ours.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /hydra/sweeper: rows\n"
        "hydra:\n  mode: MULTIRUN\nexperiment:\n  name: ours\n  rows:\n"
        "    - {row: baseline, method: none}\n"
        "    - {row: broken, method: mine, method.fails: true}\n"
        "    - {row: mine, method: mine}\n"
    )
    return tmp_path


def test_a_users_method_and_a_row_that_fails(outside, results):
    done = run_command(
        f"hydra.searchpath=[file://{outside / 'configs'}]", "+experiment=ours",
        f"results={results / 'outside'}", *QUICK, env={"PYTHONPATH": str(outside)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "error: rows failed: broken; the others are finished" in done.stderr
    assert "failed: RuntimeError: mine is broken" in done.stdout
    folder = results / "outside" / "toy" / "ours"
    with (folder / "table.csv").open() as file:
        table = {row["row"]: row for row in csv.DictReader(file)}
    assert list(table) == ["baseline", "broken", "mine"]
    assert len(images(results / "outside")) == 4
    timing = json.loads((folder / "timing.json").read_text())
    assert set(timing["rows"]) == {"baseline", "mine"}
    # Painted by now (a row of equal settings did it), it fails where it is timed.
    again = run_command(
        f"hydra.searchpath=[file://{outside / 'configs'}]", "+experiment=ours",
        f"results={results / 'outside'}", *QUICK, env={"PYTHONPATH": str(outside)},
    )  # fmt: skip
    assert again.returncode == 1
    assert "row broken could not be timed: RuntimeError: mine is broken" in again.stdout


def test_interrupted_and_resumed(results):
    """Ctrl-C loses nothing that was finished; the images equal those of an undisturbed run."""
    settings = ["method=tome", "generation.batch_size=1", "stages=[generate]", *QUICK,
                "prompts.limit=6", "generation.steps=8"]  # fmt: skip
    where = results / "interrupted"
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *settings, f"results={where}"],
        cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        # A test runner in the background may have left Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while len(images(where)) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    finished = {p: p.stat().st_mtime_ns for p in images(where)}
    assert process.returncode == 130, errors
    assert "what was finished is kept" in errors
    assert 2 <= len(finished) < 6
    assert not list(where.rglob("*.tmp"))
    assert run_command(*settings, f"results={where}").returncode == 0
    assert run_command(*settings, f"results={results / 'undisturbed'}").returncode == 0
    resumed = images(where)
    assert len(resumed) == 6
    assert finished.items() <= {p: p.stat().st_mtime_ns for p in resumed}.items()
    whole = images(results / "undisturbed")
    assert [p.read_bytes() for p in resumed] == [p.read_bytes() for p in whole]


def test_official_rows_are_repainted_whole(results):
    where = results / "official"
    settings = ["method=ca_tome", "method.refresh=[0,2,90]", "method.cache=official", *QUICK,
                "generation.batch_size=1", f"results={where}"]  # fmt: skip
    first = run_command(*settings, "stages=[generate,report]")
    assert first.returncode == 0, first.stderr
    assert "entries [90] lie beyond the last of 5 evaluations" in first.stdout
    before = images(where)
    before[0].unlink()
    rest = before[1].stat().st_mtime_ns
    assert run_command(*settings, "stages=[generate]").returncode == 0
    assert len(images(where)) == 2
    assert before[1].stat().st_mtime_ns > rest
    longer = run_command(*settings, "stages=[generate]", "prompts.limit=3")
    assert longer.returncode == 0
    assert len(images(where)) == 2 + 3  # another order is another painter


def test_wandb_offline(results):
    """A group of a run a row, which wandb's own command would upload; no secret is kept."""
    tracked, key, token = results / "tracked", "0123456789" * 4, "hf_" + "abcdefghij" * 3
    done = run_command(
        "tracking=wandb", "+experiment=compare_methods", "rows=[baseline,ca_tome]", *QUICK,
        f"results={tracked}", "stages=[generate,evaluate,report]",
        env={"WANDB_API_KEY": key, "HF_TOKEN": token},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not logged" not in done.stderr
    runs = list((tracked / "wandb").glob("offline-run-*"))
    assert len(runs) == 2
    for run in runs:
        media = {path.name.split("_")[0] for path in (run / "files" / "media").rglob("*.*")}
        assert {"table", "per", "grid"} <= media
    listed = subprocess.run(
        [sys.executable, "-m", "wandb", "sync", "--dry-run", *map(str, runs)],
        cwd=tracked, env={**os.environ, "WANDB_API_KEY": key}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    for run in runs:
        assert run.name in listed.stdout + listed.stderr
    files = [p.read_bytes() for p in tracked.rglob("*") if p.is_file()]
    for secret in (key, token):
        assert secret not in done.stdout + done.stderr
        assert not any(secret.encode() in content for content in files)


def test_a_missing_login_is_a_warning(results):
    done = run_command(
        "tracking=wandb", "tracking.mode=online", "+experiment=compare_methods", "rows=[baseline]",
        *QUICK, f"results={results / 'tracked'}", "stages=[generate,report]",
        env={"WANDB_API_KEY": "", "NETRC": "/nowhere", "HOME": str(results)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tracking=wandb: not logged: " in done.stdout + done.stderr
    assert "| Baseline" in done.stdout


def test_help_and_configuration():
    shown = run_command("--help")
    assert shown.returncode == 0
    assert "+experiment=ablation_cache" in shown.stdout
    assert "sd15_imagenet" in shown.stdout
    job = run_command("+experiment=ablation_cache", "--cfg", "job")
    assert job.returncode == 0, job.stderr
    assert "intervals:" in job.stdout
    completion = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), "-sc", "query=bash"], cwd=ROOT,
        env={"COMP_LINE": "python run.py method=", "COMP_POINT": "21", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "method=ca_tome" in completion.stdout


def test_power_is_planned_from_a_finished_pilot(ablation, results):
    done = run_command(*arguments(results, "plan=power", "power.difference.psnr=3"))
    assert done.returncode == 0, done.stderr
    lines = [line.strip("|").split("|") for line in done.stdout.splitlines() if line[:1] == "|"]
    heads, _, *rows = [[cell.strip() for cell in line] for line in lines]
    table = [dict(zip(heads, row, strict=True)) for row in rows]
    compared = {(row["row"], row["against"], row["metric"]) for row in table}
    assert ("T0.95_every1", "baseline", "clip_toy") in compared
    assert ("T0.95_every5", "T0.95_every1", "psnr") in compared
    assert {row["difference"] for row in table if row["metric"] == "psnr"} == {"3"}
    assert all(int(row["needed"]) >= 2 for row in table)


def test_replicates_of_one_row_give_its_distance_an_interval(results):
    done = run_command(
        "+experiment=noise_floor", f"results={results}", *QUICK, "prompts.limit=2",
        "sweep.replicates=2", "stages=[generate,evaluate,report]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = results / "toy" / "noise_floor"
    scores = json.loads((folder / "metrics.json").read_text())
    column = "FD (toy features)"
    assert set(scores["replicates"]["baseline"]) == {column}
    values = scores["replicates"]["baseline"][column]
    assert len(values) == 2
    assert values[0] != values[1]
    assert scores["figures"]["baseline"][column] == pytest.approx(sum(values) / 2)
    assert scores["counts"]["baseline"][column] == 2
    assert scores["counts"]["baseline"]["CLIP (toy)"] == 4
    # Other seeds have no pair in the baseline.
    assert scores["figures"]["other_seeds"]["PSNR (dB)"] is None
    assert "Student's 95 % interval" in done.stdout
    protocol = json.loads((folder / "protocol.json").read_text())
    assert protocol["departing_rows"] == {}
    assert protocol["prompts"]["rule"]["kind"] == "toy"


def test_publish_keeps_figures_and_features_without_pictures(ablation, results, tmp_path):
    _, folder = ablation
    published = tmp_path / "kept"
    done = subprocess.run(
        [sys.executable, "-m", "experiments.publish", f"run={folder}", f"out={published}",
         f"results={results}"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (published / "table.csv").read_bytes() == (folder / "table.csv").read_bytes()
    for name in row_names(folder):
        assert list((published / "features").glob(f"*/{name}.npz")), name
    assert not list(published.glob("images/**/*.png"))
    kept = sum(p.stat().st_size for p in published.rglob("*"))
    assert kept < 8 * 2**20  # most of it the plotting library in report.html
    lost = subprocess.run(
        [sys.executable, "-m", "experiments.publish", f"run={tmp_path}", f"out={published}"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert lost.returncode == 1
    assert lost.stderr.strip().endswith(
        "must be the folder of an experiment's run, with experiment.json"
    )


def test_what_an_experiment_would_cost(ablation, results, tmp_path):
    done = run_command(*arguments(results, "plan=cost", "prompts.limit=5"))
    assert done.returncode == 0, done.stderr
    lines = [line.strip("|").split("|") for line in done.stdout.splitlines() if line[:1] == "|"]
    heads, _, *rows = [[cell.strip() for cell in line] for line in lines]
    table = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    assert list(table) == [*row_names(ablation[1]), "all"]
    lacking = 0
    for name in row_names(ablation[1]):
        images, there, missing, files = (
            int(table[name][key]) for key in ("images", "there", "missing", "files")
        )
        # Two were painted first, the third by a test that makes the list longer.
        assert there in (2, 3)
        assert (images, there + missing, files) == (5, 5, 5)
        lacking += missing
    assert table["all"]["missing"] == str(lacking)
    assert float(table["all"]["GPU-hours"]) > 0
    assert "Seconds an image: measured here." in done.stdout
    fresh = run_command(*arguments(tmp_path, "plan=cost"))
    assert "Seconds an image: guessed: two CPU cores." in fresh.stdout
    assert not (tmp_path / "images").exists()


def test_the_scheduler_without_its_pipeline_is_the_pipelines_own():
    from hydra import compose, initialize_config_dir

    from experiments.models import pipelines
    from experiments.models.schedulers import scheduler
    from experiments.painting.identity import painter_identity

    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        for name in ("plms", "ddim", "dpm++2m", "euler"):
            cfg = compose("config", [f"generation.scheduler={name}"])
            pipe, alone = pipelines.load(cfg), scheduler(cfg)
            assert type(alone) is type(pipe.scheduler)
            assert dict(alone.config) == dict(pipe.scheduler.config)
            assert painter_identity(cfg, alone, Nothing()) == (
                painter_identity(cfg, pipe.scheduler, Nothing())
            )


class Nothing:
    def identity(self):
        return {}


def test_rows_on_a_worker_each(ablation, results, tmp_path):
    """`hydra/launcher=local_gpus` with two CPU workers: the same images, the same table's rows."""
    done = run_command(
        *arguments(tmp_path, "hydra/launcher=local_gpus", "hydra.launcher.workers=2"),
        "device=cpu", "rows=[baseline,T0.95_every5]", "generation.shards=2",
        "stages=[generate,evaluate,report]", env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours = {p.relative_to(tmp_path).as_posix() for p in images(tmp_path)}
    assert len(ours) == 2 * 2
    assert ours <= {p.relative_to(results).as_posix() for p in images(results)}
    assert "| CA-ToMe" in done.stdout
    logs = sorted(p.name for p in (tmp_path / "toy" / "ablation_cache" / "jobs").glob("*.log"))
    assert len(logs) == 2 * 2


def test_no_gpu_for_a_worker_each(results):
    done = run_command(*arguments(results, "hydra/launcher=local_gpus"),
                       env={"CUDA_VISIBLE_DEVICES": ""})  # fmt: skip
    assert done.returncode == 1
    assert "hydra.launcher.workers=null: 0 CUDA devices found; give a number" in done.stderr
