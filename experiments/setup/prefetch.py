"""What a benchmark downloads: models, weights of metrics, data."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from diffusers import StableDiffusionPipeline
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from omegaconf import DictConfig

from experiments.common.errors import first_line
from experiments.common.paths import find, locate
from experiments.metrics.registry import FILES, MODELS
from experiments.metrics.sources import cached, weight_urls
from experiments.models import pipelines
from experiments.setup.download import DownloadError, download, look

COCO = "http://images.cocodataset.org"
HUB_FILES = ("*.json", "*.txt", "*.safetensors")


@dataclass(frozen=True)
class Item:
    """Something to fetch: a hub repository (`revision`), or a file into `target`; an archive is
    unpacked beside itself."""

    what: str
    source: str
    target: Path | None = None
    revision: str | None = None
    pipeline: bool = False

    @property
    def there(self) -> bool:
        if self.target is not None:
            return self.target.is_file()
        try:
            snapshot_download(self.source, revision=self.revision, local_files_only=True)
        except LocalEntryNotFoundError:
            return False
        return True

    def size(self) -> int | None:
        """Bytes at the source; None where it does not say.

        Raises:
            DownloadError: it cannot be asked.
        """
        if self.target is not None:
            return look(self.source).size
        try:
            info = HfApi().model_info(self.source, revision=self.revision, files_metadata=True)
        except (OSError, HfHubHTTPError) as error:
            raise DownloadError(f"{self.source}: {first_line(error)}") from error
        wanted = {Path(pattern).suffix for pattern in HUB_FILES}
        return sum(f.size or 0 for f in info.siblings if Path(f.rfilename).suffix in wanted)

    def fetch(self) -> None:
        if self.target is not None:
            download(self.source, self.target)
            if self.target.suffix == ".zip":
                unpack(self.target)
        elif self.pipeline:  # the files that Diffusers would load
            StableDiffusionPipeline.download(self.source, revision=self.revision)
        else:
            snapshot_download(self.source, revision=self.revision, allow_patterns=HUB_FILES)


def needed(cfg: DictConfig) -> list[Item]:
    """What the benchmark downloads or reads that a folder or file of the user does not give."""
    items, names = [], set(cfg.metrics.names)
    path = locate(str(cfg.model.path))
    if not pipelines.is_local(path):
        items.append(Item("model", path, revision=cfg.model.revision, pipeline=True))
    urls = weight_urls(cfg.metrics.lpips_net)
    for key, users in FILES.items():
        if names & set(users) and cfg.metrics[key] is None:
            items.append(Item(f"weights {key}", urls[key], cached(urls[key])))
    for key, (user, _) in MODELS.items():
        if user in names and find(cfg.metrics[key]) is None:
            items.append(Item(f"weights {key}", str(cfg.metrics[key])))
    return items + data(cfg)


def data(cfg: DictConfig) -> list[Item]:
    """The archives of a COCO benchmark whose files are not there."""
    if cfg.prompts.kind != "coco":
        return []
    folder, items = Path(str(cfg.data)) / "coco", []
    year = next((y for y in ("2014", "2017") if f"val{y}" in str(cfg.prompts.path)), None)
    if year is None:  # captions of the user's own
        return []
    if find(cfg.prompts.path) is None:
        name = f"annotations_trainval{year}.zip"
        items.append(Item("captions", f"{COCO}/annotations/{name}", folder / name))
    if not (folder / f"val{year}").is_dir():
        name = f"val{year}.zip"
        items.append(Item("photographs", f"{COCO}/zips/{name}", folder / name))
    return items


def unpack(archive: Path) -> None:
    """Extract beside the archive.

    Raises:
        DownloadError: a member whose path leaves the folder, or a broken archive.
    """
    folder = archive.parent.resolve()
    try:
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if not (folder / name).resolve().is_relative_to(folder):
                    raise DownloadError(f"{archive}: {name} leaves the folder")
            opened.extractall(folder)
    except zipfile.BadZipFile as error:
        raise DownloadError(f"{archive}: {error}") from error


def look_at(items: list[Item]) -> list[Item]:
    """Print what is there and how large the rest is; returns what is missing."""
    missing = []
    for item in items:
        there = item.there
        size = None if there else item.size()
        told = "is there" if there else "size unknown" if size is None else f"{size / 1e9:.3f} GB"
        print(f"{item.what}: {item.source}: {told}", flush=True)
        if not there:
            missing.append(item)
    return missing
