import numpy as np
import pytest
import yaml
from PIL import Image

from experiments.common.errors import ConfigError
from experiments.common.paths import ROOT
from experiments.metrics.entry import file_of
from experiments.metrics.registry import METRICS
from experiments.metrics.settings import DEFAULTS, check_metrics, list_images
from experiments.metrics.statistics import write_statistics


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"name": ["fid"]}, "metrics.name=.*unknown key; known are names"),
        ({"names": ["fud"]}, "metrics.names=fud: must be one of fid, .*clip_score"),
        ({"names": "fid"}, "metrics.names=fid: must be a list"),
        ({"names": ["fid"]}, "metrics.reference=null: must be a folder of images"),
        ({"names": ["fid"], "reference": "/no/such"}, "metrics.reference=/no/such: does not exist"),
        ({"names": ["clip_toy"]}, "metrics.scorer=null"),
        ({"names": ["clip_score"], "clip_model": "./none"}, "metrics.clip_model=./none: no such"),
        ({"names": ["clip_score"], "clip_model": None}, "metrics.clip_model=null: must be a hub"),
        ({"batch_size": 0}, "metrics.batch_size=0: must be an integer >= 1"),
        ({"batch_size": True}, "metrics.batch_size=True"),
        ({"reference_scenes": 1.5}, "metrics.reference_scenes=1.5"),
        ({"reference_size": {"crop": "left"}}, "reference_size.crop=left: must be one of center"),
        ({"reference_size": {"filter": "sinc"}}, "filter=sinc: must be one of .*lanczos"),
        ({"reference_size": {"size": "big"}}, "size=big: must be painted, original or pixels"),
        ({"reference_size": {"zoom": 2}}, "reference_size.zoom=2: unknown key"),
        ({"reference_size": 512}, "reference_size=512: must have the keys"),
        ({"painted": "jpeg"}, "painted=jpeg: must have the keys format, quality, size, filter"),
        ({"painted": {"format": "gif"}}, "painted.format=gif: must be one of png, jpeg"),
        ({"painted": {"quality": 90}}, "painted.quality=90: must be null where .* is png"),
        ({"painted": {"format": "jpeg", "quality": 0}}, "quality=0: must be an integer from 1"),
        ({"painted": {"format": "jpeg", "quality": 101}}, "quality=101: must be an integer"),
        ({"painted": {"size": "painted"}}, "painted.size=painted: must be original or pixels"),
        ({"painted": {"filter": "sinc"}}, "painted.filter=sinc: must be one of"),
        ({"painted": {"crop": "none"}}, "painted.crop=none: unknown key"),
        ({"workers": -1}, "metrics.workers=-1: must be an integer >= 0, or null"),
        ({"workers": "all"}, "metrics.workers=all"),
        ({"clip_scaling": 100}, "clip_scaling=100: must be one of cosine100, hessel"),
        ({"lpips_net": "alexnet"}, "lpips_net=alexnet: must be one of alex, vgg, squeeze"),
        ({"kid_subset_size": 1}, "kid_subset_size=1: must be an integer >= 2"),
        ({"kid_subsets": 0}, "kid_subsets=0: must be an integer >= 1"),
        ({"names": ["lpips"], "lpips_backbone": "/no/such"}, "lpips_backbone=/no/such: does not"),
        ({"names": ["isc"], "inception_weights": "/no/such"}, "inception_weights=/no/such: does"),
        ({"names": ["fd_dinov2"]}, "metrics.reference=null: must be a folder of images"),
    ],
)
def test_each_mistake_is_one_line_with_key_value_and_what_is_allowed(metrics, message):
    with pytest.raises(ConfigError, match=message) as caught:
        check_metrics({"names": ["psnr"], **metrics})
    assert "\n" not in str(caught.value)


def test_an_empty_reference_folder_and_a_folder_as_weights_are_refused(textured, tmp_path):
    with pytest.raises(ConfigError, match=r"must be a folder with .png"):
        check_metrics({"names": ["fid"], "reference": str(tmp_path)})
    Image.fromarray(textured(1, 0)[0]).save(tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"inception_weights=.*must be a file, or null"):
        check_metrics(
            {"names": ["fid"], "reference": str(tmp_path), "inception_weights": str(tmp_path)}
        )


def test_every_metric_can_be_asked_for():
    for name, metric in METRICS.items():
        file = file_of(name)
        assert callable(file.measure), name
        # What takes features says from which network, so that they are kept while painting.
        features = metric.files + (metric.model or ()) + ("scorer",) * metric.scorer
        assert hasattr(file, "network") == (bool(features) and name != "lpips"), name


def test_a_reference_is_a_folder_a_list_or_statistics(textured, tmp_path):
    def check(path, *names):
        return check_metrics({"names": names, "reference": str(path)})["reference"]

    statistics = tmp_path / "s.npz"
    write_statistics(statistics, np.zeros(3), np.eye(3))
    assert check(statistics, "fid", "fid_pytorch_fid") == statistics
    with pytest.raises(ConfigError, match=r"s.npz: kid, prc need images, statistics do not"):
        check(statistics, "fid", "kid", "prc")
    write_statistics(statistics, np.full(3, np.nan), np.eye(3))
    with pytest.raises(ConfigError, match=r"metrics.reference=.*s.npz: mu or sigma holds NaN"):
        check(statistics, "fid")
    listed = tmp_path / "set.txt"
    for text, reason in (
        ("# only: a header\n", "lists no image"),
        ("a photograph\n", "line 1 is not"),
        (f"{'0' * 64}  none.png\n", "1 of its 1 files are missing"),
    ):
        listed.write_text(text)
        with pytest.raises(ConfigError, match=rf"metrics.reference=.*set.txt: {reason}") as caught:
            check(listed, "kid")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["standard", "toy"])
def test_the_config_files_name_every_key_once(name):
    config = yaml.safe_load((ROOT / "configs/metrics" / f"{name}.yaml").read_text())
    assert list(config) == list(DEFAULTS)
    check_metrics({**config, "names": ["psnr", "ssim"]})


def test_images_are_found_in_subfolders_in_order_and_hidden_files_are_not(tmp_path):
    for name in ("b.JPG", "a/z.webp", "a/y.png", ".hidden.png", ".cache/x.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [p.relative_to(tmp_path).as_posix() for p in list_images(tmp_path)]
    assert found == ["a/y.png", "a/z.webp", "b.JPG"]
