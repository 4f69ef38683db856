"""Disks that are full, folders that cannot be written or are gone, two processes on one share."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import QUICK, ROOT, run_command
from hydra import compose, initialize_config_dir

from experiments.accelerators.build import build_method
from experiments.models import pipelines
from experiments.painting import generate, pipeline_call
from experiments.painting.store import ImageStore, Prompt, is_whole_png

ONE_ROW = [
    *QUICK, "+experiment=compare_methods", "rows=[baseline]", "stages=[generate,report]",
    "prompts.limit=8", "generation.batch_size=1", "device=cpu",
]  # fmt: skip
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@contextmanager
def small_disk(folder: Path, size: str):
    """A file system of its own."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a file system needs root and the right to")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def images(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (folder / "images").rglob("*.png")}


def one_line(done) -> str:
    """The last line of what a failed command told; never a traceback."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_full_disk_loses_nothing_that_was_finished(tmp_path):
    with small_disk(tmp_path / "disk", "160k") as disk:
        told = one_line(run_command(*ONE_ROW, f"results={disk}", env=ONE_THREAD))
        assert "No space left on device" in told
        before = images(disk)
        assert 0 < len(before) < 8
        assert all(map(is_whole_png, before))
        assert not list(disk.rglob(".*.tmp"))
        remount(disk, "size=20m")
        done = run_command(*ONE_ROW, f"results={disk}", env=ONE_THREAD)
        assert done.returncode == 0, done.stderr
        assert before.items() <= images(disk).items()
        assert len(images(disk)) == 8


def test_a_read_only_folder_is_said_in_one_line(tmp_path):
    with small_disk(tmp_path / "disk", "20m") as disk:
        remount(disk, "ro")
        told = one_line(run_command(*ONE_ROW, f"results={disk}", env=ONE_THREAD))
        assert "Read-only file system" in told
        assert str(disk) in told


def test_two_processes_on_one_row_paint_the_same_files(tmp_path):
    command = [sys.executable, str(ROOT / "run.py"), *ONE_ROW, f"results={tmp_path}"]
    both = [
        subprocess.Popen(command, cwd=ROOT, env={**os.environ, **ONE_THREAD},
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]  # fmt: skip
    for process in both:
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
        assert "| Baseline" in out
    assert len(images(tmp_path)) == 8
    assert all(map(is_whole_png, images(tmp_path)))
    assert not list(tmp_path.rglob(".*.tmp"))


def test_a_folder_removed_while_it_is_filled(tmp_path, monkeypatch):
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("config", ["method=none", "generation.steps=2", "generation.batch_size=2"])
    pipe, store = pipelines.load(cfg), ImageStore(tmp_path, {"a": "painter"})
    prompts = [Prompt("a red ring", seed) for seed in range(6)]
    painted = []

    def generate_and_remove(*arguments):
        painted.append(original(*arguments))
        if len(painted) == 2:
            shutil.rmtree(tmp_path / "images")
        return painted[-1]

    original = pipeline_call.generate
    monkeypatch.setattr(pipeline_call, "generate", generate_and_remove)
    generate.paint(cfg, pipe, build_method(cfg), store, prompts, "row")
    assert store.missing(prompts) == prompts[:2]
    generate.paint(cfg, pipe, build_method(cfg), store, prompts, "row")
    assert store.missing(prompts) == []
    assert len(painted) == 4


@pytest.mark.parametrize("store", ["files", "zip"])
def test_kept_images_and_the_features_of_all(tmp_path, store):
    """`keep_images`: a second call measures nothing anew and has the same figures; what was not
    measured before cannot be."""
    command = [
        *QUICK, "+experiment=compare_methods", "rows=[baseline,ca_tome]", "device=cpu",
        "prompts.limit=6", f"results={tmp_path}", f"store={store}", "keep_images=2",
    ]  # fmt: skip
    stages = "stages=[generate,evaluate,report]"
    done = run_command(*command, stages, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "toy" / "compare_methods"
    figures = {name: (folder / name).read_bytes() for name in ("metrics.json", "per_image.csv")}
    assert "| Baseline" in done.stdout
    assert len(images(tmp_path)) == 2 * 2
    again = run_command(*command, stages, env=ONE_THREAD)
    assert again.returncode == 0, again.stderr
    assert {name: (folder / name).read_bytes() for name in figures} == figures
    packed = len(list(tmp_path.rglob("*.zip")))
    assert (len(images(tmp_path)), packed) == ((4, 0) if store == "files" else (0, 2))
    told = one_line(run_command(*command, "metrics.painted.size=64", "stages=[evaluate]"))
    assert "4 images were not kept (keep_images)" in told
