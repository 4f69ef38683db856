"""The library alone: a wheel that needs torch and nothing else of this repository."""

import subprocess
import sys

from commands import ROOT

SCRIPT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"diffusers", "transformers", "hydra", "omegaconf", "experiments"}:
            raise ImportError(f"{name} is not part of this installation")

sys.meta_path.insert(0, Refuse())
import catome, torch
assert catome.__file__.startswith(sys.argv[1]), catome.__file__
corners = catome.destination_tokens(8, 8, 2)
found, _ = catome.match(torch.randn(2, 64, 8), corners, catome.Ratio(0.5))
assert found.unmerge(found.merge(torch.randn(2, 64, 8))).shape == (2, 64, 8)
try:
    catome.apply(torch.nn.Linear(1, 1), catome.TokenMerging(select=catome.Ratio(0.5)))
except ImportError as error:
    print(error)
print(catome.__version__)
"""


def test_the_wheel_alone_imports(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels, target = tmp_path / "wheels", tmp_path / "site"
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ROOT]
    subprocess.run(build, check=True, timeout=200)
    (wheel,) = wheels.glob("catome-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    assert {p.name for p in target.iterdir() if p.is_dir() and "dist-info" not in p.name} == {
        "catome"
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(target)],
        cwd=tmp_path, env={"PYTHONPATH": str(target)}, capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "pip install diffusers" in done.stdout
