"""The page in a real browser: headless Chromium, with every request it makes refused."""

import math
import os
import re
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from experiments.report.entry import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        if "chromium" in os.environ.get("CATOME_REQUIRE", ""):
            pytest.fail("CATOME_REQUIRE names chromium, which is not installed")
        pytest.skip("needs Chromium (apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory, make_run):
    """One opened page; `page.complaints` are console errors and requests that left the file."""
    folder = tmp_path_factory.mktemp("run")
    captions = ("a red ring", "a <b>blue</b> cross </script><script>alert(1)</script>", "a disk")
    make_run(folder, captions=captions, swept="interval")
    write_report(folder)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("dialog", lambda dialog: page.complaints.append(f"dialog {dialog.message}"))
    address = (folder / "report.html").as_uri()
    page.on(
        "request",
        lambda r: page.complaints.append(r.url) if not r.url.startswith(("data:", address)) else 0,
    )
    page.goto(address)
    # The page forbids eval: what is waited for is polled from here, not by a script in it.
    expect(page.locator("#measured")).not_to_be_empty()
    return page


def column(page, index):
    cells = page.locator(f"table.sortable tbody tr td:nth-child({index + 1})")
    return cells.all_text_contents()


def test_a_click_on_a_heading_sorts(page):
    heads = page.locator("table.sortable th").all_text_contents()
    seconds = heads.index("s/im ↓")
    before = column(page, seconds)
    head = page.locator("table.sortable th").nth(seconds)
    head.get_by_role("button").click()
    rising = [float(cell) for cell in column(page, seconds)]
    assert rising == sorted(map(float, before))
    assert head.get_attribute("aria-sort") == "ascending"
    head.get_by_role("button").click()
    assert [float(cell) for cell in column(page, seconds)] == rising[::-1]
    # Cells without a number stay last, in either order.
    threshold = heads.index("T")
    for _ in range(2):
        page.locator("table.sortable th").nth(threshold).get_by_role("button").click()
        assert column(page, threshold) == ["0.7", "0.7", "—", "—"]


def test_hovering_over_a_point_shows_its_row(page):
    chart = page.locator("#chart-0")
    chart.evaluate("element => element.scrollIntoView({block: 'center'})")
    box = chart.locator(".scatterlayer .points path.point").first.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(middle[0] - 40, middle[1] - 40)
    page.mouse.move(*middle, steps=5)
    label = chart.locator(".hoverlayer .hovertext")
    label.first.wait_for()
    assert "s/im" in label.first.text_content()


def test_the_slider_moves_the_edge_between_two_rows(page):
    slider = page.locator("#position")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 0.5 * box["height"])
    assert abs(float(slider.input_value()) - 25) < 3
    clip = page.locator("#above").evaluate("image => image.style.clipPath")
    assert "75" in clip or "74" in clip or "76" in clip


def test_psnr_and_difference_are_of_the_chosen_rows(page):
    page.locator("#left").select_option("baseline")
    page.locator("#right").select_option("baseline")
    expect(page.locator("#measured")).to_have_text(re.compile("identical$"))
    page.locator("#right").select_option("fewer_steps")
    expect(page.locator("#measured")).to_contain_text("dB")
    shown = float(page.locator("#measured").text_content().split("PSNR ")[1].split(" dB")[0])
    error = page.evaluate(
        """() => {
          const read = (id) => {
            const image = document.getElementById(id), canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            canvas.getContext("2d").drawImage(image, 0, 0);
            return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          };
          const [a, b] = [read("above"), read("below")];
          let sum = 0;
          for (let i = 0; i < a.length; i += 1) sum += (a[i] - b[i]) ** 2;
          return sum / (0.75 * a.length);
        }"""
    )
    assert shown == pytest.approx(10 * math.log10(255**2 / error), abs=0.01)
    drawn = page.locator("#difference").evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data"
        ".some((v, i) => i % 4 < 3 && v > 0)"
    )
    assert drawn


def test_worst_prompts_come_first_on_request(page):
    listed = page.locator("#prompt option").all_text_contents()
    page.locator("#worst").check()
    worst = page.locator("#prompt option").all_text_contents()
    decibels = [float(text.rsplit("(", 1)[1].removesuffix(" dB)")) for text in worst]
    assert decibels == sorted(decibels)
    assert sorted(worst) == sorted(listed)
    page.locator("#worst").uncheck()


def test_nothing_was_requested_and_nothing_complained(page, tmp_path):
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 20_000
    assert page.complaints == []
