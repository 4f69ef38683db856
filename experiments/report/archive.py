"""One archive of a run: tables, scores, features, thumbnails; anonymous on request."""

from __future__ import annotations

import getpass
import json
import re
import socket
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml

from experiments.common import environment
from experiments.common.errors import ConfigError
from experiments.common.files import read_json, write_atomically
from experiments.common.paths import ROOT
from experiments.metrics.images import read_image
from experiments.report.publish import publish
from experiments.report.run_folder import read_run

TEXTS = (".json", ".yaml", ".csv", ".md", ".tex", ".html")
THUMBNAIL = 256  # pixels a side at most
REMOVED = "removed"
# Paths are cut down to their last part; a lone slash, a division or a tag is none.
ABSOLUTE_PATH = re.compile(r"(?<![\w:/.<])(?:~|[A-Za-z]:)?(?:/[\w.+@-]+){2,}/?")
IDENTIFYING = ("code", "tracking", "hostname")  # keys that are dropped whole


def write_archive(folder: Path, out: Path, results: Path, images: int, anonymous: bool) -> int:
    """Write the archive of a run; returns how many files it holds.

    Args:
        results: folder with the cache of features.
        images: thumbnails a row at most.
        anonymous: leave out what tells who ran it.

    Raises:
        ConfigError: something that identifies would be let through.
    """
    with tempfile.TemporaryDirectory() as scratch:
        gathered = Path(scratch)
        publish(folder, gathered, results)
        write_thumbnails(folder, gathered, images)
        if anonymous:
            anonymise(gathered, identifying_texts(folder))
        write_atomically(out, lambda beside: pack(gathered, folder.name, beside))
        return sum(path.is_file() for path in gathered.rglob("*"))


def write_thumbnails(run: Path, out: Path, limit: int) -> None:
    """`images/<row>/<position>.png`, re-encoded: what was written into the PNGs stays behind."""
    for name, paths in read_run(run).painted.items():
        for position, path in enumerate(paths[:limit]):
            try:
                image = read_image(path)
            except ValueError:
                continue  # deleted or broken since; the scores remain
            image.thumbnail((THUMBNAIL, THUMBNAIL))
            target = out / "images" / name / f"{position:05d}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            image.convert("RGB").save(target)


def identifying_texts(run: Path) -> list[str]:
    """Texts that must not occur in an anonymous archive."""
    found = [socket.gethostname(), str(Path.home()), str(ROOT), getpass.getuser()]
    commit = environment.code().get("commit")
    found += [commit] if commit else []
    try:
        remotes = environment.git("remote", "-v").split()
        found += [part for part in remotes if "/" in part]
        found.append(environment.git("config", "user.name"))
        found.append(environment.git("config", "user.email"))
    except (OSError, subprocess.CalledProcessError):
        pass
    config = run / "config.yaml"
    if config.is_file():
        tracking = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("tracking") or {}
        found += [str(v) for k, v in tracking.items() if k == "entity" and v]
    experiment = read_json(run / "experiment.json")
    found.append((experiment.get("code") or {}).get("commit") or "")
    # Names such as root and localhost say nothing, and stand in ordinary words.
    common = {"root", "user", "ubuntu", "localhost", "main", "admin"}
    return sorted({text for text in found if len(text) > 2 and text not in common}, key=len)


def anonymise(folder: Path, identifying: list[str]) -> None:
    """Clean every text file of a folder in place.

    Raises:
        ConfigError: something that identifies is left.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        if path.suffix not in TEXTS:
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            text = json.dumps(without_keys(json.loads(text)), indent=1, ensure_ascii=False)
        elif path.suffix == ".yaml":
            text = yaml.safe_dump(without_keys(yaml.safe_load(text)), sort_keys=False)
        path.write_text(cleaned(text, identifying), encoding="utf-8")
    for path in files:
        content = path.read_bytes().decode("latin-1")
        # Compressed bytes hold any short text by chance.
        sought = identifying if path.suffix in TEXTS else [t for t in identifying if len(t) > 8]
        left = [text for text in sought if word(text).search(content)]
        if left:
            raise ConfigError(f"anonymous=true: {path.relative_to(folder)} still holds {left[0]!r}")


def without_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_keys(v) for k, v in value.items() if k not in IDENTIFYING}
    if isinstance(value, list):
        return [without_keys(v) for v in value]
    return value


def cleaned(text: str, identifying: list[str]) -> str:
    """Identifying texts replaced, and absolute paths cut down to their last part.

    Scripts of a page keep their paths: they are the plotting library's, not the run's.
    """
    for known in reversed(identifying):  # the longest first
        text = word(known).sub(REMOVED, text)
    parts = re.split(r"(<script.*?</script>)", text, flags=re.DOTALL)
    return "".join(
        part
        if part.startswith("<script")
        else ABSOLUTE_PATH.sub(lambda m: m[0].rstrip("/").rsplit("/", 1)[-1], part)
        for part in parts
    )


def word(text: str) -> re.Pattern[str]:
    """A text that stands by itself: not within a longer word or within base64."""
    return re.compile(rf"(?<![A-Za-z0-9+]){re.escape(text)}(?![A-Za-z0-9+=])")


def pack(folder: Path, name: str, out: Path) -> None:
    """A zip whose bytes depend on the contents only."""
    with zipfile.ZipFile(out, "w") as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(f"{name}/{path.relative_to(folder)}", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
