"""The HTML report in Chromium: opened, clicked and typed into. Reports are written by test/write_html_report, so that
the tests need no comparison; the last one lets the tool compare."""

import os
import subprocess

import numpy
import pytest
from browser import Browser, find_browser
from conftest import BUILD

CHOSEN = "document.querySelector('#table tr[aria-current] td:nth-child(2)').firstChild.textContent"
TAGS = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[1].firstChild.textContent)"
FOCUSED_TAG = "document.activeElement.cells[1].firstChild.textContent"
HEAT_READOUT = "document.querySelector('#details .readout').textContent"
# How many different colours a canvas shows.
COLOURS = """((canvas) => {
  const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(pixels).size;
})(document.querySelector('%s'))"""
FEW = [f"layer{i}.conv" for i in range(6)]


@pytest.fixture(scope="module")
def browser():
    program = find_browser()
    if program is None:
        if os.environ.get("OPS_DEBUG_NEEDS_BROWSER") == "1":
            pytest.fail("OPS_DEBUG_NEEDS_BROWSER=1, but no browser: scripts/setup.sh --browser installs Chromium")
        pytest.skip("no browser on this machine (scripts/setup.sh --browser installs Chromium)")
    with Browser(program) as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """report("few") -> the path of that sample."""
    folder = tmp_path_factory.mktemp("reports")

    def write(kind):
        path = folder / f"{kind}.html"
        if not path.exists():
            subprocess.run([BUILD / "test/write_html_report", kind, path], check=True, timeout=60)
        return path

    return write


@pytest.mark.parametrize("kind", ["few", "many", "outcomes", "hostile", "empty"])
def test_opens_without_complaint_and_loads_nothing_else(browser, report, kind):
    browser.open(report(kind), dark=kind == "outcomes")
    assert browser.complaints() == []
    beside = [url for url in browser.requests() if not url.startswith("data:")]
    assert beside == [report(kind).as_uri()]


def test_the_policy_forbids_other_scripts_and_the_network(browser, report):
    """The proof that the file is self-contained: even code inside the page cannot load or run anything more."""
    browser.open(report("few"))
    blocked = browser.evaluate("""new Promise((done) => {
      const seen = [];
      document.addEventListener('securitypolicyviolation', (event) => {
        seen.push(event.effectiveDirective);
        if (seen.length === 3) done(seen.sort());
      });
      const script = document.createElement('script');
      script.textContent = 'window.wasRun = true';
      document.body.append(script);
      fetch('http://127.0.0.1:9/').catch(() => {});
      new Image().src = 'http://127.0.0.1:9/picture.png';
    })""")
    assert blocked == ["connect-src", "img-src", "script-src-elem"]
    assert browser.evaluate("window.wasRun") is None


def test_names_are_text(browser, report):
    scripts = "document.querySelectorAll('script').length"
    browser.open(report("few"))
    own = browser.evaluate(scripts)
    browser.open(report("hostile"))
    assert browser.evaluate(scripts) == own
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate(CHOSEN).startswith("</script><img src=x")
    assert browser.evaluate("document.title").startswith("</script>")


def test_the_head_tells_the_verdict_and_the_first_divergence(browser, report):
    browser.open(report("few"))
    assert browser.evaluate("document.getElementById('verdict').textContent") == (
        "FAIL: 2 of 6 pairs differ; first divergence: layer4.conv (number 4)")
    assert browser.evaluate(CHOSEN) == "layer4.conv"
    assert browser.evaluate("document.querySelector('.mark').closest('tr').cells[0].textContent") == "4"
    verdicts = "[...document.querySelectorAll('tr.failing')].map((row) => row.cells[2].textContent)"
    assert browser.evaluate(verdicts) == ["FAIL", "FAIL"]


def test_the_table_sorts_by_click(browser, report):
    browser.open(report("few"))
    assert browser.evaluate(TAGS) == FEW
    browser.click("#table th:nth-child(4) button")  # max abs: the worst first
    assert browser.evaluate(TAGS) == FEW[::-1]
    assert browser.evaluate("document.querySelector('#table th:nth-child(4)').ariaSort") == "descending"
    browser.click("#table th:nth-child(4) button")
    assert browser.evaluate(TAGS) == FEW
    assert browser.evaluate("document.querySelectorAll('#table th[aria-sort=none]').length") == 11


def test_the_table_sorts_by_keyboard(browser, report):
    browser.open(report("few"))
    browser.evaluate("document.querySelector('#table th button').focus()")
    browser.press("Tab", "Tab", "Tab", "Enter")
    assert browser.evaluate(TAGS) == FEW[::-1]
    browser.press(" ")
    assert browser.evaluate(TAGS) == FEW


def test_pairs_without_numbers_come_last_in_either_order(browser, report):
    browser.open(report("outcomes"))
    for _ in range(2):
        browser.click("#table th:nth-child(4) button")
        last = set(browser.evaluate(TAGS)[-4:])
        assert last == {"of another shape", "of another dtype", "all NaN", "only on one side"}


def test_a_row_is_chosen_by_keyboard(browser, report):
    browser.open(report("few"))
    browser.evaluate("document.querySelector('#table tr[tabindex=\"0\"]').focus()")
    browser.press("ArrowUp", "ArrowUp")
    assert browser.evaluate(FOCUSED_TAG) == "layer2.conv"
    browser.press("Enter")
    assert browser.evaluate(CHOSEN) == "layer2.conv"
    assert browser.evaluate("document.activeElement.textContent") == "2: layer2.conv"
    browser.press("Escape")
    assert browser.evaluate(FOCUSED_TAG) == "layer2.conv"


def test_a_row_is_chosen_by_click(browser, report):
    browser.open(report("few"))
    browser.click("#table tbody tr:nth-child(4)")
    assert browser.evaluate(CHOSEN) == "layer3.conv"
    assert browser.evaluate("document.getElementById('details-title').textContent") == "3: layer3.conv"


def test_the_filter_leaves_matching_rows(browser, report):
    browser.open(report("many"))
    browser.evaluate("document.getElementById('filter').focus()")
    browser.press(*"layer19 float")
    assert browser.evaluate(TAGS) == ["layer19.conv"] + [f"layer{i}.conv" for i in range(190, 200)]
    browser.evaluate("document.getElementById('filter').value = ''")
    browser.click("#only-failing")
    assert browser.evaluate("document.querySelectorAll('#table tbody tr:not(.failing)').length") == 0
    failing = browser.evaluate("report.pairs.filter((pair) => pair.outcome === 'fail').length")
    assert browser.evaluate("document.getElementById('shown').textContent") == f"{failing} of 200 shown"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_heat_map_is_drawn(browser, report, dark):
    browser.open(report("few"), dark=dark)
    assert browser.evaluate(COLOURS % "#details canvas.heat") > 20
    assert browser.evaluate(COLOURS % "#details .legend canvas") > 50  # the colour scale


def test_the_heat_map_reads_a_tile_under_the_mouse(browser, report):
    browser.open(report("few"))
    browser.move_mouse("#details canvas.heat", (0.5 / 56, 4.5 / 32))
    # Row 4 of the sample is 1e-4 of the largest error, and the first column half of the last.
    assert browser.evaluate(HEAT_READOUT) == (
        "rows 3584–4479, columns 0 (from [1, 0, 0, 0]): |difference| up to ≈ 7.2e−7")


def test_the_heat_map_reads_tiles_by_keyboard(browser, report):
    browser.open(report("few"))
    browser.evaluate("document.querySelector('#details canvas.heat').focus()")
    largest = "rows 896–1791, columns 55 (from [0, 16, 0, 55]): |difference| up to 0.01445, the largest"
    assert browser.evaluate(HEAT_READOUT) == largest
    browser.press("ArrowDown", "Home")
    assert browser.evaluate(HEAT_READOUT).startswith("rows 1792–2687, columns 0 ")
    browser.press("m")
    assert browser.evaluate(HEAT_READOUT) == largest


def test_tiles_that_are_not_finite_or_equal_say_so(browser, report):
    browser.open(report("outcomes"))
    browser.click("#table tbody tr:nth-child(9)")
    assert browser.evaluate(CHOSEN) == "infinite"
    assert browser.evaluate(HEAT_READOUT).endswith(": not finite on one side")
    browser.evaluate("document.querySelector('#details canvas.heat').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate(HEAT_READOUT).endswith(": equal")


def test_charts_are_drawn_and_follow_the_measure(browser, report):
    browser.open(report("few"))
    canvases = browser.evaluate("document.querySelectorAll('#details .chart canvas').length")
    assert canvases == 4 + 3 + 2  # axes, the peaked factor of three terms, histograms
    first = "#details .small-charts canvas"
    assert browser.evaluate(COLOURS % first) > 2
    picture = f"document.querySelector('{first}').toDataURL()"
    before = browser.evaluate(picture)
    browser.evaluate("document.querySelector('#details select').focus()")
    browser.press("ArrowDown")
    assert browser.evaluate(picture) != before
    caption = browser.evaluate("document.querySelector('#details figcaption').textContent")
    assert caption == "dim 1 (64) explains 93 %; worst: 16 (97 %)"
    assert browser.evaluate(COLOURS % "#sequence-chart") > 2
    assert browser.complaints() == []


def test_points_of_the_sequence_lead_to_their_rows(browser, report):
    browser.open(report("few"))
    browser.evaluate("document.getElementById('sequence-chart').focus()")
    browser.press("Home", "ArrowRight")
    readout = browser.evaluate("document.getElementById('sequence-readout').textContent")
    assert readout == "1: layer1.conv: 3.655e−6 (pass)"
    browser.press("Enter")
    assert browser.evaluate(CHOSEN) == "layer1.conv"
    browser.click("#sequence-chart", (0.95, 0.5))
    assert browser.evaluate(CHOSEN) == "layer5.conv"


def test_every_row_can_be_chosen(browser, report):
    """Among them what was not compared, scalars, and numbers that are not finite."""
    browser.open(report("outcomes"))
    for i in range(10):
        browser.click(f"#table tbody tr:nth-child({i + 1})")
        assert browser.evaluate("document.getElementById('details-title').textContent").startswith(f"{i}: ")
    assert browser.complaints() == []


def test_a_change_of_the_theme_redraws(browser, report):
    browser.open(report("few"))
    picture = "document.getElementById('sequence-chart').toDataURL()"
    light = browser.evaluate(picture)
    browser.set_theme("dark")
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.evaluate(picture) != light
    assert browser.complaints() == []


def test_a_narrow_screen_does_not_scroll_sideways(browser, report):
    browser.open(report("few"), width=360, height=640)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360


def test_two_hundred_layers_are_small_and_open_fast(browser, report):
    path = report("many")
    assert path.stat().st_size < 5_000_000
    # A machine that is busy otherwise gets several tries.
    seconds = [float("inf")]
    while min(seconds) >= 2 and len(seconds) <= 5:
        browser.open(path)
        # From the start of the navigation to a picture with the whole table, the charts and the first details.
        seconds.append(browser.evaluate("performance.now()") / 1000)
        assert browser.evaluate("document.querySelectorAll('#table tbody tr').length") == 200
    assert min(seconds) < 2, seconds


def test_the_tool_writes_such_a_report(browser, tmp_path):
    random = numpy.random.default_rng(1)
    reference = {f"layer{i}.conv": random.standard_normal((2, 32, 28, 28)).astype(numpy.float32) for i in range(6)}
    candidate = {name: layer.copy() for name, layer in reference.items()}
    for i in (3, 4, 5):
        candidate[f"layer{i}.conv"][:, 16] *= 1.05
    numpy.savez(tmp_path / "a.npz", **candidate)
    numpy.savez(tmp_path / "b.npz", **reference)
    page = tmp_path / "conv_diff.html"
    command = [BUILD / "ops-debug", "diff", "a.npz", "b.npz", "--format", "html", "--output", page, "--heatmap"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 86, result.stderr
    browser.open(page)
    assert browser.complaints() == []
    assert browser.evaluate(CHOSEN) == "layer3.conv"
    assert "16" in browser.evaluate("document.querySelector('#details .hints').textContent")
    caption = browser.evaluate("document.querySelector('#details figcaption').textContent")
    assert caption.startswith("dim 1 (32) explains ")
    assert browser.evaluate(COLOURS % "#details canvas.heat") > 20
