import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Annotation
from PIL import Image

from experiments.report.grid import plot_grid
from experiments.report.plots import label_points, plot_against_seconds, plot_along_swept_key
from experiments.report.run_folder import read_run, row_label


@pytest.fixture(scope="module")
def sweep(make_run, merging_columns, default_rows, tmp_path_factory):
    rows = {"baseline": default_rows["baseline"]}
    for threshold in (0.8, 0.9):
        for k in (1, 5, 10):
            caching = "every step" if k == 1 else f"every {k}"
            rows[f"T{threshold}_{k}"] = merging_columns(caching, threshold, k)
    rows["fewer_steps"] = default_rows["fewer_steps"]
    captions = [f"caption {i} of a scene that has many words in it" for i in range(10)]
    folder = tmp_path_factory.mktemp("sweep")
    return read_run(make_run(folder, rows, captions, swept="interval", published=None))


def ink(path):
    """Share of pixels that are not white."""
    return (np.asarray(Image.open(path).convert("L")) < 250).mean()


def test_a_sweep_has_a_line_for_each_threshold(sweep, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "experiments.report.plots.save", lambda figure, folder, name: drawn.append((figure, name))
    )
    plot_along_swept_key(sweep, tmp_path)
    ((figure, name),) = drawn
    assert name == "along_interval"
    visible = [axes for axes in figure.axes if axes.get_visible()]
    titles = [axes.get_ylabel() for axes in visible]
    assert titles == [
        "PSNR (dB) ↑",
        "SSIM ↑",
        "CLIP (toy) ↑",
        "FD (toy features) ↓",
        "seconds an image ↓",
        "speed-up ↑",
        "share of sources merged",
    ]
    seconds = visible[4]
    lines = {line.get_label(): line for line in seconds.lines}
    assert list(lines) == ["CA-ToMe T=0.8", "CA-ToMe T=0.9", "No merging", "Fewer steps (40)"]
    assert lines["CA-ToMe T=0.8"].get_xdata().tolist() == [1, 5, 10]
    assert lines["CA-ToMe T=0.8"].get_ydata().tolist() == [3.5, 3.0, 2.5]
    assert set(lines["No merging"].get_ydata()) == {4.0}
    assert seconds.get_xlabel() == "matches every k evaluations"
    legend = [text.get_text() for text in figure.legends[0].texts]
    assert legend == ["CA-ToMe T=0.8", "CA-ToMe T=0.9", "No merging", "Fewer steps (40)"]
    plt.close(figure)


def test_nothing_is_drawn_along_a_key_that_is_not_swept(make_run, tmp_path):
    plot_along_swept_key(read_run(make_run(tmp_path)), tmp_path / "plots")
    assert not (tmp_path / "plots").exists()


def test_quality_against_seconds_needs_both_stages(make_run, tmp_path):
    folder = make_run(tmp_path)
    plot_against_seconds(read_run(folder), folder / "both")
    assert ink(folder / "both" / "quality_against_seconds.png") > 0.005
    (folder / "timing.json").unlink()
    plot_against_seconds(read_run(folder), folder / "one")
    assert not (folder / "one").exists()


def test_labels_of_crowded_points_overlap_neither_each_other_nor_points():
    figure, axes = plt.subplots(figsize=(5.6, 4), dpi=150)
    rng = np.random.default_rng(0)
    points = [tuple(p) for p in rng.normal(0, 0.3, (10, 2))]
    axes.plot(*zip(*points, strict=True), "o")
    axes.set(xlim=(-2, 2), ylim=(-2, 2))
    label_points(axes, points, [f"CA-ToMe T=0.9 every {i}" for i in range(10)], [])
    figure.canvas.draw()
    texts = [t for t in axes.texts if isinstance(t, Annotation) and t.get_text()]
    boxes = [t.get_window_extent() for t in texts]
    assert len(boxes) == 10
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])
        assert not any(one.contains(*axes.transData.transform(p)) for p in points)
    plt.close(figure)


def test_the_grid_has_at_most_8_prompts_and_says_what_it_leaves_out(
    sweep, make_run, merging_columns, default_rows, tmp_path, monkeypatch
):
    drawn = []
    monkeypatch.setattr(
        "experiments.report.grid.save", lambda figure, folder, name: drawn.append(figure)
    )
    plot_grid(sweep, tmp_path)
    figure = drawn.pop()
    assert len(figure.axes) == 8 * 8
    assert figure.axes[0].get_title() == "caption 0 of a scene\nthat has many words in\nit"
    labels = [axes.get_ylabel() for axes in figure.axes[::8]]
    assert labels[0] == "No merging"
    assert labels[2] == "CA-ToMe T=0.8\nevery 5"
    plt.close(figure)

    rows = {"baseline": default_rows["baseline"]}
    rows |= {f"r{k}": merging_columns(f"every {k}", 0.9, k) for k in range(2, 14)}
    folder = make_run(tmp_path, rows, published=None)
    (folder / "images" / "r2" / "0.png").unlink()
    plot_grid(read_run(folder), tmp_path)
    figure = drawn.pop()
    assert len(figure.axes) == 10
    assert [text.get_text() for text in figure.texts] == ["3 more rows are not shown"]
    assert [len(axes.images) for axes in figure.axes[:3]] == [1, 0, 1]
    plt.close(figure)


def test_row_labels_name_what_differs(sweep, make_run, tmp_path):
    labels = [row_label(sweep, row) for row in sweep.rows]
    assert labels[:3] == ["No merging", "CA-ToMe T=0.8 every step", "CA-ToMe T=0.8 every 5"]
    assert labels[-1] == "Fewer steps (40)"
    assert len(set(labels)) == len(labels)
