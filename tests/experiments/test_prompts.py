"""Prompt sources: COCO captions, ImageNet classes, users' files."""

import json

import pytest
from omegaconf import OmegaConf

from experiments.common.errors import ConfigError
from experiments.painting import prompts


def options(kind="coco", **changes):
    base = {"kind": kind, "path": None, "limit": None, "captions": "one", "seed": 0, "scenes": 8}
    base |= {"split": None, "tune_share": 0.25}
    return OmegaConf.create({**base, **changes})


@pytest.fixture
def captions_file(tmp_path):
    path = tmp_path / "captions.json"
    content = {
        "images": [{"id": 7 * i} for i in range(10)],
        "annotations": [
            {"id": 100 + 3 * i + k, "image_id": 7 * i, "caption": f"  image {i}\n caption  {k} "}
            for i in range(10)
            for k in range(3)
        ],
    }
    path.write_text(json.dumps(content))
    return path


def test_coco_takes_one_caption_an_image_and_trims_it(captions_file, tmp_path):
    chosen, rule = prompts.load(options(path=str(captions_file)), 5, tmp_path)
    assert len(chosen) == 10 == len({p.source for p in chosen})
    for position, prompt in enumerate(chosen):
        image = int(prompt.source) // 7
        assert prompt.text in {f"image {image} caption {k}" for k in range(3)}
        assert prompt.seed == 5 + position
    assert rule["captions"] == "one"
    assert rule["available"] == 10


def test_coco_choice_and_order_depend_on_the_seed_alone(captions_file, tmp_path):
    def texts(seed):
        chosen, _ = prompts.load(options(path=str(captions_file), seed=seed), 0, tmp_path)
        return [p.text for p in chosen]

    assert texts(0) == texts(0)
    assert texts(0) != texts(1)


def test_coco_all_captions(captions_file, tmp_path):
    chosen, _ = prompts.load(options(path=str(captions_file), captions="all"), 0, tmp_path)
    assert len(chosen) == 30


def test_replicates_repeat_the_list_with_other_seeds(captions_file, tmp_path):
    once, _ = prompts.load(options(path=str(captions_file), limit=4), 5, tmp_path)
    chosen, rule = prompts.load(options(path=str(captions_file), limit=4), 5, tmp_path, 3)
    assert chosen[:4] == once
    assert [p.text for p in chosen] == 3 * [p.text for p in once]
    assert [p.replicate for p in chosen] == [0] * 4 + [1] * 4 + [2] * 4
    assert len({p.seed for p in chosen}) == 12
    assert rule["replicates"] == 3
    # A longer list and more replicates repaint nothing.
    longer, _ = prompts.load(options(path=str(captions_file), limit=9), 5, tmp_path, 4)
    assert set(chosen) <= set(longer)


def test_the_two_splits_share_no_prompt_and_leave_none_out(captions_file, tmp_path):
    def texts(split):
        given = options(path=str(captions_file), captions="all", split=split)
        return {p.text for p in prompts.load(given, 0, tmp_path)[0]}

    tune, report = texts("tune"), texts("report")
    assert tune
    assert report
    assert not tune & report
    assert tune | report == texts(None)
    assert len(tune) < len(report)


def test_a_longer_list_begins_with_the_shorter_one(captions_file, tmp_path):
    short, _ = prompts.load(options(path=str(captions_file), limit=3), 0, tmp_path)
    long, _ = prompts.load(options(path=str(captions_file), limit=9), 0, tmp_path)
    assert long[:3] == short


def test_real_coco_captions(coco_folder, tmp_path):
    if coco_folder is None:
        pytest.skip("needs COCO's captions_val2017.json (CATOME_TEST_COCO)")
    path = coco_folder / "captions_val2017.json"
    chosen, rule = prompts.load(options(path=str(path)), 0, tmp_path)
    assert len(chosen) == 5000 == rule["available"]
    assert all(p.text == " ".join(p.text.split()) for p in chosen)


def test_imagenet_protocol(tmp_path):
    imagenet = OmegaConf.create({
        "kind": "imagenet", "path": None, "limit": None, "per_class": 2, "class_names": None,
        "template": "A high quality photograph of a {class}.", "seed": 0,
        "split": None, "tune_share": 0.25,
    })  # fmt: skip
    chosen, rule = prompts.load(imagenet, 0, tmp_path)
    assert len(chosen) == 2000
    assert chosen[0].text == chosen[1].text == "A high quality photograph of a tench."
    assert chosen[0].seed != chosen[1].seed  # the two images of a class differ
    assert len({p.key for p in chosen}) == 2000
    assert "torchvision" in rule["class_names"]
    names = tmp_path / "names.txt"
    names.write_text("crane bird\nconstruction crane\n")
    imagenet.class_names = str(names)
    chosen, rule = prompts.load(imagenet, 0, tmp_path)
    assert [p.text for p in chosen][::2] == [
        "A high quality photograph of a crane bird.",
        "A high quality photograph of a construction crane.",
    ]
    assert rule["class_names"] == str(names)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", "a cat\n\n  a  dog \n"),
        ("p.csv", 'id,prompt\n1,a cat\n2,"a  dog"\n'),
        ("p.json", '["a cat", {"caption": " a dog"}]'),
    ],
)
def test_users_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    chosen, _ = prompts.load(options("toy", path=str(path)), 0, tmp_path)
    assert [p.text for p in chosen] == ["a cat", "a dog"]


def test_toy_captions_are_read_from_files_in_cocos_format(tmp_path):
    chosen, rule = prompts.load(options("toy"), 0, tmp_path)
    assert len(chosen) == 8
    folder = tmp_path / "toy_scenes" / "held_out_8"
    assert len(list((folder / "images").glob("*.png"))) == 8
    written = json.loads((folder / "captions.json").read_text())["annotations"]
    assert {p.text for p in chosen} == {a["caption"] for a in written}
    assert rule["file"] == "captions.json"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", "\n \n", "holds no prompts"),
        ("p.json", "{not json", "is not JSON"),
        ("p.json", '{"images": [], "rows": []}', "must be COCO captions"),
        ("p.json", '{"images": [{"id": 1}], "annotations": [{"id": 2}]}', "must be COCO captions"),
        ("p.json", "[1, 2]", "entry 0 must be text"),
        ("p.csv", "a,b\n1,2\n", "needs a column named prompt or caption or text"),
        ("p.txt", b"\xff\xfe\x00", "must be UTF-8"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message) as error:
        prompts.load(options("toy", path=str(path)), 0, tmp_path)
    assert str(error.value).startswith("prompts.path=")


def test_truncated_captions_are_counted(tmp_path):
    class Tokenizer:
        model_max_length = 6

        def __call__(self, texts):
            ids = [[0, *range(len(t.split())), 1] for t in texts]
            return type("Out", (), {"input_ids": ids})

    path = tmp_path / "p.txt"
    path.write_text("one two three\none two three four five\n")
    chosen, rule = prompts.load(options("toy", path=str(path)), 0, tmp_path)
    assert prompts.manifest(chosen, rule, Tokenizer())["truncated"] == 1
