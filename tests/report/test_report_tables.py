import json

import numpy as np
import pandas as pd
import pytest

from experiments.report.card import card_of
from experiments.report.entry import write_report
from experiments.report.formats import to_csv, to_latex, to_markdown
from experiments.report.notes import notes_of
from experiments.report.run_folder import read_run
from experiments.report.table import build_table


def printed(folder):
    """The Markdown without drawing the plots, which most tests have no use for."""
    run = read_run(folder)
    return to_markdown("Title", build_table(run), notes_of(run), card_of(run))


@pytest.fixture(scope="module")
def complete(make_run, tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("run"), captions=("a red ring", "a blue cross"))
    return folder, write_report(folder)


def test_published_numbers_stand_beside_ours(complete, read_table):
    folder, markdown = complete
    assert (folder / "table.md").read_text(encoding="utf-8") == markdown + "\n"
    rows = read_table(markdown)
    baseline, config3, every5, rule, fewer = rows
    assert (baseline["FID published"], baseline["s/im published"]) == ("33.66", "7.61")
    assert (config3["FID published"], config3["s/im published"]) == ("34.05", "6.09")
    assert (every5["FID published"], every5["s/im published"]) == ("35.20", "6.14")
    assert fewer["FID published"] == fewer["s/im published"] == "—"
    assert rule["method"] == "*apart:*"
    assert fewer["method"] == "Fewer steps (40)"
    run = read_run(folder)
    halves = {c: i.half for c in run.quality_columns() if (i := run.interval(run.rows[1], c))}
    assert set(halves) == {"CLIP (toy)", "PSNR (dB)", "SSIM"}
    assert (
        config3
        | {
            "method": "CA-ToMe",
            "T": "0.7",
            "caching": "config 3",
            "FD (toy features) ↓": "11.50 (n=2)",
            "CLIP (toy) ↑": f"27.25 ± {halves['CLIP (toy)']:.2f}",
            "PSNR (dB) ↑": f"24.12 ± {halves['PSNR (dB)']:.2f}",
            "SSIM ↑": f"0.890 ± {halves['SSIM']:.3f} (p5 0.790)",
            "s/im ↓": "3.50",
            "speed-up ↑": "1.14× (1.09–1.21)",
            "merged": "43 %",
            "GFLOPs/im": "800",
            "GiB peak": "1.50",
            "n": "2",
        }
        == config3
    )
    assert baseline["PSNR (dB) ↑"] == "—"
    assert baseline["speed-up ↑"] == "1.00×"


def test_notes_say_what_the_numbers_rest_on(complete):
    _, markdown = complete
    for text in (
        "Images: 2 a row",
        "Prompts: kind toy, seed 3",
        "Seeds: 7 to 8, one an image",
        "1 captions exceed 32 tokens",
        "“a red ring” (seed 7); “a blue cross” (seed 8)",
        "generation.scheduler plms",
        "Warning: made-up distances are biased.",
        "± is half of the 95 % interval of a mean over images",
        "Fréchet distances carry no interval",
        "an interval of that median by order statistics, which covers it in 75%",
        "Attention ran as: scaled_dot_product_flash_attention",
        "commit 0123456789ab",
        "median of 3 whole generations at batch size 1",
        "device A made-up GPU",
        "dtype float32",
        "attention_backend fused",
        "V100, FID by pytorch-fid",
        "unknown: dtype, batch_size, attention",
        "0.57 FID and 0.10 s apart",
        "A note of the experiment.",
    ):
        assert text in markdown, text
    # Steps differ between rows, so they are no setting of all rows.
    assert "generation.steps" not in markdown


def test_the_csv_has_every_figure_and_its_settings(complete):
    folder, _ = complete
    table = pd.read_csv(folder / "table.csv").set_index("row")
    assert list(table.index) == ["baseline", "T0.7_config3", "T0.7_every5", "fewer_steps"]
    row = table.loc["T0.7_config3"]
    assert row["PSNR (dB)"] == 24.125
    assert row["PSNR (dB) low"] < 24.125 < row["PSNR (dB) high"]
    assert row["CLIP (toy) minus baseline"] == -1
    assert row["SSIM 5th percentile"] == 0.79
    assert row["FD (toy features) n"] == 2
    assert row["timing s_per_evaluation_match"] == 0.08
    assert json.loads(row["timing s_per_image_all"]) == [3.5, 3.6, 3.4]
    assert row["timing repeats"] == 3
    assert row["environment attention_backend"] == "fused"
    assert row["setting generation.steps"] == 50
    assert table.loc["fewer_steps", "setting generation.steps"] == 40
    assert row["published FID"] == 34.05
    assert "arXiv 2501.00946" in row["published source"]


def test_plots_are_written_as_png_and_pdf(complete):
    folder, _ = complete
    names = {p.name for p in (folder / "plots").iterdir()}
    stems = ("quality_against_seconds", "grid")
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf")}


def test_with_few_images_pairs_and_clip_lead_with_many_the_distance_does(make_run, tmp_path):
    def heads(folder):
        return build_table(read_run(folder)).heads

    few = heads(make_run(tmp_path / "few", published=None))
    assert few.index("PSNR (dB) ↑") < few.index("SSIM ↑") < few.index("CLIP (toy) ↑")
    assert few.index("CLIP (toy) ↑") < few.index("FD (toy features) ↓")
    many = heads(make_run(tmp_path / "many", n=2048))
    assert many.index("FD (toy features) ↓") < many.index("CLIP (toy) ↑")
    assert many.index("FID published") == many.index("FD (toy features) ↓") + 1
    assert "(n=" not in printed(tmp_path / "many")


def test_a_stage_that_was_not_run_leaves_dashes_and_a_note(make_run, read_table, tmp_path):
    folder = make_run(tmp_path)
    (folder / "timing.json").unlink()
    markdown = write_report(folder)
    rows = read_table(markdown)
    assert all(row["s/im ↓"] == row["speed-up ↑"] == row["GFLOPs/im"] in ("—", "") for row in rows)
    assert rows[1]["PSNR (dB) ↑"] == "24.12"
    assert "The stage time was not run" in markdown
    (folder / "metrics.json").unlink()
    (folder / "manifest.json").unlink()
    (folder / "painted.json").unlink()
    (folder / "rows" / "T0.7_every5.json").unlink()
    markdown = write_report(folder)
    assert read_table(markdown)[1]["quality"] == "—"
    assert "The stage evaluate was not run" in markdown
    assert "Not generated yet: T0.7_every5." in markdown


def test_a_failed_row_says_why_and_the_others_stay(make_run, change_json, read_table, tmp_path):
    folder = make_run(tmp_path)
    error = "RuntimeError: out | of memory, and this goes on for longer than a cell is wide"
    path = folder / "rows" / "T0.7_config3.json"
    change_json(path, status="failed", error=error, images=0)
    timing = json.loads((folder / "timing.json").read_text())
    timing["rows"]["T0.7_every5"] = {"error": "ValueError: not today"}
    (folder / "timing.json").write_text(json.dumps(timing))
    markdown = printed(folder).replace("\\|", "/")
    rows = read_table(markdown)
    assert rows[1]["PSNR (dB) ↑"].startswith("failed: RuntimeError: out / of memory")
    assert rows[1]["s/im ↓"] == rows[1]["FID published"] == "—"
    assert rows[2]["s/im ↓"] == "—"
    assert rows[0]["s/im ↓"] == "4.00"
    assert f"Row T0.7_config3 failed: {error}".replace("|", "/") in markdown
    assert "Row T0.7_every5 could not be timed: ValueError: not today" in markdown
    table = to_csv(read_run(folder)).set_index("row")
    assert table.loc["T0.7_config3", "error"] == error


def test_order_dependent_rows_are_marked(make_run, change_json, read_table, tmp_path):
    folder = make_run(tmp_path)
    change_json(folder / "rows" / "T0.7_config3.json", order_dependent=True)
    markdown = printed(folder)
    assert [row["method"] for row in read_table(markdown)][:3] == [
        "No merging",
        "CA-ToMe†",
        "CA-ToMe",
    ]
    assert "† order-dependent: an image of T0.7_config3 depends" in markdown


def test_nothing_inside_the_interval_is_called_a_difference(make_run, read_table, tmp_path):
    folder = make_run(tmp_path, captions=("a", "b", "c", "d"))
    table = pd.read_csv(folder / "per_image.csv")
    clearly, noisily = table["row"] == "T0.7_config3", table["row"] == "T0.7_every5"
    base = table.loc[table["row"] == "baseline", "clip_toy"].to_numpy()
    table.loc[clearly, "clip_toy"] = base - [1.0, 1.1, 0.9, 1.0]
    table.loc[noisily, "clip_toy"] = base + np.array([1.0, -1.1, 0.9, -1.0])
    table.to_csv(folder / "per_image.csv", index=False)
    markdown = printed(folder)
    baseline, first, second, *_ = (row["CLIP (toy) ↑"] for row in read_table(markdown))
    assert "≈" not in baseline + first
    assert second.endswith("≈")
    assert "≈: the 95 % interval of the paired difference" in markdown


def test_replicates_give_a_distance_its_interval(make_run, change_json, read_table, tmp_path):
    folder = make_run(tmp_path)
    replicates = {"baseline": {"FD (toy features)": [10.0, 11.0, 10.5]}}
    change_json(folder / "metrics.json", replicates=replicates)
    markdown = printed(folder)
    baseline, first, *_ = (row["FD (toy features) ↓"] for row in read_table(markdown))
    assert baseline == "10.50 ± 1.24 (n=1)"
    assert first == "11.50 (n=1)"
    assert "Student's 95 % interval over the replicates" in markdown


def test_rows_of_another_day_are_marked(make_run, change_json, read_table, tmp_path):
    folder = make_run(tmp_path)
    settings = {"dtype": "float16", "generation.scheduler": "plms", "generation.steps": 50}
    change_json(folder / "rows" / "T0.7_config3.json", settings=settings)
    elsewhere = {"device": ["Another GPU"]}
    change_json(folder / "rows" / "T0.7_every5.json", painted_on=elsewhere)
    markdown = printed(folder)
    methods = [row["method"] for row in read_table(markdown)]
    assert methods[:3] == ["No merging", "CA-ToMe‡", "CA-ToMe‡"]
    assert "‡ row T0.7_config3 differs from the baseline in dtype" in markdown
    assert "‡ row T0.7_every5 differs from the baseline in painted on" in markdown
    # Steps are what the experiment varies.
    assert "fewer_steps differs" not in markdown


def test_the_protocol_is_written_as_data(complete):
    folder, _ = complete
    protocol = json.loads((folder / "protocol.json").read_text(encoding="utf-8"))
    assert protocol["prompts"]["rule"] == {"kind": "toy", "seed": 3}
    assert protocol["painting"] == {"dtype": "float32", "generation.scheduler": "plms"}
    assert protocol["rows"]["fewer_steps"] == {"generation.steps": 40}
    assert protocol["timing"]["environment"]["device"] == "A made-up GPU"
    assert protocol["departing_rows"] == {}
    assert protocol["metrics"]["columns"]["PSNR (dB)"]["metric"] == "psnr"


def test_figures_of_fewer_images_than_painted_are_said_to_be(make_run, change_json, tmp_path):
    folder = make_run(tmp_path)
    change_json(folder / "rows" / "baseline.json", images=9)
    assert "Row baseline: 9 images are painted, the figures are of 1" in printed(folder)


def test_layouts_and_settings_that_differ_have_columns(
    make_run, merging_columns, default_rows, tmp_path
):
    def heads(name, **experiment):
        folder = make_run(tmp_path / name, published=None, **experiment)
        table = build_table(read_run(folder))
        return table.heads[: next(i for i, h in enumerate(table.heads) if "↑" in h)]

    assert heads("methods", layout="methods") == ["method", "T", "ratio", "caching"]
    one = {"baseline": default_rows["baseline"], "T0.9": merging_columns("every step", 0.9)}
    assert heads("threshold", layout="threshold", rows=one) == ["method", "T"]
    both = one | {"T0.9_every5": merging_columns("every 5", 0.9, 5)}
    assert heads("caching", layout="threshold", rows=both) == ["method", "T", "caching"]
    steps = one | {"short": merging_columns("every step", 0.9) | {"steps": 20}}
    assert heads("steps", layout="threshold", rows=steps) == ["method", "T", "steps"]


HOSTILE = (
    "<script>alert(1)</script> & <b>",
    r"\input{x} $\alpha$ 50% #1 {_^~",
    '=cmd()|"calc"',
    "a | b \\| c\n\n## heading\r\n- item `code` *bold*",
    "漢字 ☃ \x00\x1b[31m ünïcode",
    "[link](javascript:alert) ![x](y)",
)


@pytest.fixture(scope="module")
def hostile(make_run, merging_columns, default_rows, tmp_path_factory):
    rows = {"baseline": default_rows["baseline"], "=row": merging_columns("every step")}
    rows["=row"] |= {"method": "=SUM(A1)|<i>"}
    folder = make_run(
        tmp_path_factory.mktemp("hostile"), rows, HOSTILE, title=r"\input{y} | <script>"
    )
    return folder, write_report(folder)


def test_captions_do_not_break_markdown(hostile):
    _, markdown = hostile
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert "<script>" not in markdown
    assert "<i>" not in markdown
    assert "\x1b" not in markdown
    assert [line for line in markdown.splitlines() if line.startswith("#")] == [
        markdown.splitlines()[0]
    ]
    assert "`code`" not in markdown.replace("\\`", "")
    # Every caption is still there.
    for word in ("alert(1)", "input{x}", "=cmd()", "heading", "漢字", "javascript"):
        assert word in markdown


def braces_balance(text):
    depth = 0
    plain = text.replace(r"\\", "  ").replace(r"\{", "  ").replace(r"\}", "  ")
    for c in plain:
        depth += (c == "{") - (c == "}")
        if depth < 0:
            return False
    return depth == 0


def test_captions_do_not_break_latex(hostile, complete):
    for folder, _ in (hostile, complete):
        text = (folder / "table.tex").read_text(encoding="utf-8")
        body = text.split("\n", 1)[1]
        assert braces_balance(body)
        assert r"\input" not in text
        assert "$\\alpha" not in text
        assert body.count("%") == body.count(r"\%")
        assert body.count("#") == body.count(r"\#")
        assert body.count("_") == body.count(r"\_")
        assert (body.count("$") - body.count(r"\$")) % 2 == 0
        assert all(ord(c) < 256 for c in text)
        lines = body.split(r"\toprule")[1].split(r"\bottomrule")[0].splitlines()
        lines = [line for line in lines if line.endswith(r"\\")]
        counts = {line.replace(r"\&", "").count("&") for line in lines}
        assert len(counts) == 1
        alignment = text.split(r"\begin{tabular}{")[1].split("}")[0]
        assert counts == {len(alignment) - 1}
        for name in ("table", "tabular", "minipage"):
            assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1


def test_the_apart_rule_is_a_midrule_in_latex(complete):
    folder, _ = complete
    run = read_run(folder)
    text = to_latex("t", build_table(run), [], [])
    assert text.count(r"\midrule") == 2
    assert text.index("Fewer steps") > text.rindex(r"\midrule")


def test_no_csv_cell_is_a_formula(hostile):
    folder, _ = hostile
    for name in ("table.csv", "per_image.csv"):
        cells = pd.read_csv(folder / name, dtype=str, keep_default_na=False, header=None)
        for cell in cells.to_numpy().ravel():
            assert not cell.startswith(("=", "+", "@", "\t")), cell
            assert not cell.startswith("-") or cell[1:].replace(".", "").isdigit(), cell
    table = pd.read_csv(folder / "table.csv", dtype=str)
    assert table.loc[1, "row"] == "'=row"


def test_without_experiment_json_there_is_nothing_to_report(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"experiment\.json"):
        write_report(tmp_path)
