"""Experiments on a real SLURM, by the commands that users type."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import QUICK, ROOT, run_command

LAUNCHER = [
    "hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2",
    "hydra.launcher.poll_s=1", 'hydra.launcher.setup=["export OMP_NUM_THREADS=1"]',
]  # fmt: skip


def run(slurm, results, *arguments, experiment="compare_methods", timeout=400, **env):
    return run_command(
        f"+experiment={experiment}", f"results={results}", *QUICK, "device=cpu", *LAUNCHER,
        *arguments, env={**slurm.env, **env}, timeout=timeout,
    )  # fmt: skip


def record(results, row, experiment="compare_methods"):
    return json.loads((results / "toy" / experiment / "rows" / f"{row}.json").read_text())


@pytest.fixture(scope="module")
def swept(slurm, tmp_path_factory):
    """Four rows, one of which cannot be painted."""
    results = tmp_path_factory.mktemp("swept")
    rows = "rows=[baseline,tome,ca_tome,fewer_steps]"
    return run(slurm, results, rows, "timing.batch_size=1"), results


def test_a_sweep_prints_its_table(swept):
    done, results = swept
    assert done.returncode == 0, done.stderr
    for label in ("Baseline", "ToMe", "CA-ToMe", "Fewer steps", "speed-up"):
        assert label in done.stdout
    assert "jobs run the code as it is now" in done.stdout + done.stderr
    assert len(list((results / "images").rglob("*.png"))) == 2 * 4
    folder = results / "toy" / "compare_methods"
    listed = json.loads((folder / "jobs.json").read_text())
    assert {job["row"] for job in listed["painting"]} == {
        "baseline", "tome", "ca_tome", "fewer_steps",
    }  # fmt: skip
    assert len({job["job"] for job in listed["painting"]}) == 4
    timing = json.loads((folder / "timing.json").read_text())
    assert timing["rows"]["ca_tome"]["speedup"] > 0


def test_jobs_ran_the_code_that_was_submitted(swept):
    _, results = swept
    (copy,) = (results / "code").iterdir()
    facts = json.loads((copy / "snapshot.json").read_text())
    experiment = json.loads((results / "toy" / "compare_methods" / "experiment.json").read_text())
    assert experiment["code"]["snapshot"] == facts["snapshot"] == copy.name
    assert (copy / "run.py").is_file()


def test_a_plain_process_paints_the_same_images(swept, tmp_path):
    _, results = swept
    rows = "rows=[baseline,tome,ca_tome,fewer_steps]"
    here = run_command("+experiment=compare_methods", f"results={tmp_path}", *QUICK, "device=cpu",
                       rows, "stages=[generate]", env={"OMP_NUM_THREADS": "1"})  # fmt: skip
    assert here.returncode == 0, here.stderr
    ours = {p.relative_to(tmp_path): p for p in (tmp_path / "images").rglob("*.png")}
    assert len(ours) == 8
    for name, path in ours.items():
        assert path.read_bytes() == (results / name).read_bytes()


def test_wait_false_returns_at_once_and_a_later_report_gathers(slurm, tmp_path):
    rows = ["rows=[baseline,ca_tome]", "generation.shards=2", "hydra.launcher.nodes=1"]
    done = run(slurm, tmp_path, *rows, "wait=false", "stages=[generate,evaluate,report]")
    assert done.returncode == 0, done.stderr
    found = re.search(r"submitted: 4 painting tasks as (\d+), then (\d+);", done.stdout)
    assert found, done.stdout
    assert "|" not in done.stdout.split("submitted")[1]
    wait_for(slurm, found[2])
    report = run_command("+experiment=compare_methods", f"results={tmp_path}", *QUICK,
                         "device=cpu", "rows=[baseline,ca_tome]", "stages=[report]")  # fmt: skip
    assert report.returncode == 0, report.stderr
    assert "| CA-ToMe" in report.stdout
    assert "PSNR" in report.stdout
    assert len(list((tmp_path / "images").rglob("*.png"))) == 2 * 2


def wait_for(slurm, job, seconds=200):
    for _ in range(seconds):
        if slurm.jobs().get(job) in ("COMPLETED", "FAILED", "CANCELLED"):
            break
        time.sleep(1)
    assert slurm.jobs()[job] == "COMPLETED"


def own_experiment(configs, *rows):
    """An experiment `own` of these rows, in YAML."""
    (configs / "experiment").mkdir(parents=True)
    (configs / "experiment" / "own.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n  - override /hydra/sweeper: rows\n"
        "hydra:\n  mode: MULTIRUN\n"
        "experiment:\n  name: own\n  title: Own rows\n  layout: methods\n  rows:\n"
        + "".join(f"    - {row}\n" for row in rows)
    )


def test_a_failing_row_leaves_the_others(slurm, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model_index.json").write_text('{"_class_name": "StableDiffusionPipeline"}')
    lost = f"{{row: lost, method: tome, model.path: {broken}}}"
    own_experiment(tmp_path / "configs", "{row: baseline, method: none}", lost)
    done = run(
        slurm, tmp_path, f"hydra.searchpath=[file://{tmp_path / 'configs'}]",
        "stages=[generate,evaluate,report]", experiment="own",
    )  # fmt: skip
    assert done.returncode == 1
    assert "rows failed: lost; the others are finished" in done.stderr
    assert "| Baseline" in done.stdout
    assert record(tmp_path, "baseline", "own")["status"] == "done"
    assert {job["row"]: job["attempts"] for job in painting_jobs(tmp_path, "own")} == {
        "baseline": 1,
        "lost": 1,
    }
    lost = record(tmp_path, "lost", "own")
    assert lost["status"] == "failed"
    assert "model.path=" in lost["error"]


def test_a_killed_task_is_noticed_and_run_again(slurm, tmp_path):
    """SIGKILL in the middle of painting: what was finished is not painted again."""
    command = start(
        slurm, tmp_path, "rows=[baseline]", "prompts.limit=6", "generation.batch_size=1",
        "stages=[generate,evaluate,report]",
    )  # fmt: skip
    first = wait_until(lambda: sorted((tmp_path / "images").rglob("*.png")), "an image", slurm)[0]
    written = first.stat().st_mtime_ns
    kill_tasks(tmp_path)
    out, err = command.communicate(timeout=300)
    assert command.returncode == 0, err
    assert "was killed; started again" in out + err
    assert "| Baseline" in out
    assert len(list((tmp_path / "images").rglob("*.png"))) == 6
    assert first.stat().st_mtime_ns == written
    (job,) = painting_jobs(tmp_path)
    assert job["attempts"] == 2


def painting_jobs(results, experiment="compare_methods"):
    folder = results / "toy" / experiment
    return json.loads((folder / "jobs.json").read_text())["painting"]


def start(slurm, results, *arguments):
    return subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), "+experiment=compare_methods", f"results={results}",
         *QUICK, "device=cpu", *LAUNCHER, *arguments],
        cwd=ROOT, env={**os.environ, **slurm.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def wait_until(look, what, slurm, seconds=300):
    """What `look` finds, once it finds something."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    queue = slurm.call("squeue", "-t", "all") + slurm.call("sinfo", "-N", "-l")
    pytest.fail(f"{what} did not appear in {seconds} s\n{queue}")


def kill_tasks(results):
    """SIGKILL for the processes that submitit runs for these results."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text().split("\0")
            if "submitit.core._submit" in words and any(str(results) in word for word in words):
                os.kill(int(path.parent.name), signal.SIGKILL)


@pytest.mark.timeout(900)
def test_a_task_out_of_time_goes_on_in_a_new_one(slurm, tmp_path):
    """SLURM warns of the limit up to half a minute early: this task is asked to stop while it
    paints, is requeued, and completes."""
    (tmp_path / "configs" / "method").mkdir(parents=True)
    (tmp_path / "configs" / "method" / "slow.yaml").write_text(
        "_target_: slow.Slow\nname: slow\nseconds: 1.5\n"
    )
    own_experiment(tmp_path / "configs", "{row: baseline, method: slow}")
    done = run(
        slurm, tmp_path, f"hydra.searchpath=[file://{tmp_path / 'configs'}]", "prompts.limit=10",
        "prompts.scenes=10", "generation.batch_size=1", "hydra.launcher.timeout_min=2",
        "hydra.launcher.signal_delay_s=60", "hydra.launcher.max_num_timeout=20",
        "stages=[generate,report]", experiment="own", timeout=800,
        PYTHONPATH=str(Path(__file__).parent),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "images").rglob("*.png"))) == 10
    (job,) = painting_jobs(tmp_path, "own")
    log = Path(job["log"]).read_text()
    assert "Job has timed out" in log  # submitit's word for what SLURM's warning makes it do
    assert log.count("snapshot") > 1


def test_a_preempted_task_goes_on_afterwards(slurm, tmp_path):
    command = start(
        slurm, tmp_path, "rows=[baseline]", "prompts.limit=10", "prompts.scenes=10",
        "generation.batch_size=1",
        "hydra.launcher.partition=low", "hydra.launcher.timeout_min=20",
        "stages=[generate,report]",
    )  # fmt: skip
    wait_until(lambda: list((tmp_path / "images").rglob("*.png")), "an image", slurm)
    for node in ("n1", "n2"):
        slurm.call("sbatch", "-p", "high", "-w", node, "--exclusive", "--mem=3000",
                   "-o", "/dev/null", "--wrap", "sleep 5")  # fmt: skip
    out, err = command.communicate(timeout=400)
    assert command.returncode == 0, err
    assert len(list((tmp_path / "images").rglob("*.png"))) == 10
    assert "| Baseline" in out


def test_shards_share_a_row_over_nodes_with_a_gpu_each(slurm, tmp_path):
    """Pretend GPUs: what is tested is who paints what, on the CPU."""
    done = run(
        slurm, tmp_path, "rows=[baseline]", "prompts.limit=8", "generation.shards=2",
        "hydra.launcher.tasks_per_node=2", "hydra.launcher.gpus_per_node=2",
        "stages=[generate,report]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "images").rglob("*.png"))) == 8
    jobs = painting_jobs(tmp_path)
    assert len(jobs) == 2
    painted = []
    for job in jobs:
        for log in Path(job["log"]).parent.glob(f"{job['job']}_*_log.err"):
            painted += re.findall(r"baseline (\d)/4", log.read_text())
    assert set(painted) == {"1", "2", "3", "4"}
