"""The page and the site in a real browser: Chromium, phone and desktop width, both colour schemes, axe's checks."""

import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from report_data import table3_run

from ctxbench.report.write import write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install ctxbench[dev]")
pytest.importorskip("axe_core_python", reason="axe-core-python is not installed: pip install ctxbench[dev]")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.long,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="no Chromium: apt-get install chromium chromium-driver"
    ),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [
    page.relative_to(DOCS).with_suffix("").as_posix()
    for folder in ("", "plugins", "suites")
    for page in sorted((DOCS / folder).glob("*.md"))
]
WIDTHS = {"phone": 390, "desktop": 1280}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("browser")
    report = write_report([table3_run(folder / "run", failed=["sa"])], folder / "out")
    return Path(report.page).as_uri()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The documentation, without the reports."""
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install ctxbench[dev]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-D", "html_extra_path=", str(DOCS), str(folder)]
    subprocess.run(command, check=True)
    return folder.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


def visit(browser: Any, page: str, width: int = 1280, scheme: str = "light") -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(page)


def modules(browser: Any) -> list[str]:
    """The module of each row of the first table that is shown, in order."""
    script = """return [...document.querySelectorAll('#table-1 tbody tr')].filter(row => !row.hidden)
        .map(row => row.querySelector('.narrow').textContent)"""
    return list(browser.execute_script(script))


# Colours do not depend on the width, nor places on the scheme.
@pytest.mark.parametrize(("width", "scheme"), [(WIDTHS["phone"], "light"), (WIDTHS["desktop"], "dark")], ids=WIDTHS)
def test_the_page_is_accessible_and_fits(browser: Any, page: str, width: int, scheme: str) -> None:
    visit(browser, page, width, scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})  # axe itself is a foreign script
    browser.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    result = browser.execute_async_script("axe.run().then(arguments[0])")
    found = [(v["id"], v["nodes"][0]["html"][:200], len(v["nodes"])) for v in result["violations"]]
    assert found == []
    assert len(result["passes"]) > 20


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_colours_follow_the_scheme_in_text_and_figures(browser: Any, page: str, scheme: str, dark: bool) -> None:
    visit(browser, page, scheme=scheme)
    script = """
        const brightness = (element, name) => {
            const [r, g, b] = getComputedStyle(element)[name].match(/\\d+/g).map(Number);
            return 0.3 * r + 0.59 * g + 0.11 * b;
        };
        const label = document.querySelector('figure svg text');
        return [brightness(document.body, 'backgroundColor'), brightness(document.body, 'color'),
                brightness(label, 'fill')]"""
    paper, ink, label = browser.execute_script(script)
    assert (paper < 64) is dark
    assert (ink > 192) is dark
    assert (label > 192) is dark


def test_nothing_is_loaded_and_nothing_is_complained_of(browser: Any, page: str) -> None:
    browser.get_log("browser")
    visit(browser, page)
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []


def test_columns_sort_with_the_keyboard(browser: Any, page: str) -> None:
    visit(browser, page)
    macs = "document.querySelector('#table-1 button.sort[aria-label=\"MACs (G): here\"]')"
    orders = []
    for _ in range(2):
        browser.execute_script(f"{macs}.focus()")
        browser.switch_to.active_element.send_keys("\ue007")  # Enter
        orders.append((browser.execute_script(f"return {macs}.closest('th').ariaSort"), modules(browser)))
    assert orders == [
        ("ascending", ["linear", "ham_nmf", "da", "sa"]),
        ("descending", ["sa", "da", "ham_nmf", "linear"]),
    ]


def test_rows_without_a_number_sort_to_the_end(browser: Any, page: str) -> None:
    visit(browser, page)
    time = "document.querySelector('#table-1 button.sort[aria-label=\"Time, infer (ms): here\"]').click()"
    for _ in range(2):
        browser.execute_script(time)
        assert modules(browser)[-1] == "sa"


def test_rows_filter_by_module_family_and_status(browser: Any, page: str) -> None:
    visit(browser, page)
    field = browser.find_element("name", "module")
    field.send_keys("HAM")
    assert modules(browser) == ["ham_nmf"]
    assert browser.find_element("css selector", "output").text == "1 row"
    browser.execute_script("document.querySelector('form.filters').reset()")
    browser.find_element("css selector", "select[name=status]").send_keys("oom")
    assert modules(browser) == ["sa"]
    browser.execute_script("document.querySelector('form.filters').reset()")
    browser.find_element("css selector", "select[name=family]").send_keys("attention")
    assert modules(browser) == ["sa", "da"]


def test_a_focused_time_tells_its_interval_and_escape_hides_it(browser: Any, page: str) -> None:
    visit(browser, page)
    browser.execute_script("document.querySelector('#table-1 tbody th').focus()")
    stops = browser.execute_script("return document.querySelectorAll('#table-1 tbody [tabindex=\"0\"]').length")
    assert stops == len(modules(browser))  # one a row; the arrow keys lead to its cells
    browser.switch_to.active_element.send_keys("\ue014")  # right
    tooltip = browser.find_element("id", "tooltip")
    assert tooltip.is_displayed()
    assert tooltip.text == browser.switch_to.active_element.get_attribute("data-detail")
    assert browser.switch_to.active_element.get_attribute("aria-describedby") == "tooltip"
    browser.switch_to.active_element.send_keys("\ue00c")  # Escape
    assert not tooltip.is_displayed()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(WIDTHS["phone"], "light"), (WIDTHS["desktop"], "dark")], ids=WIDTHS)
def test_no_page_of_the_site_is_wider_than_the_screen(
    browser: Any, site: str, name: str, width: int, scheme: str
) -> None:
    visit(browser, f"{site}/{name}.html", width, scheme)
    assert browser.title.endswith("ctxbench"), "there is no such page"
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    script = """return [...document.querySelectorAll('article *')].filter(element =>
        element.getBoundingClientRect().right > innerWidth && !element.closest('.table-wrapper, pre')
        ).map(element => element.outerHTML.slice(0, 100))"""
    assert browser.execute_script(script) == []
    script = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert (max(browser.execute_script(script)) < 64) is (scheme == "dark")


def test_the_first_page_of_the_site_has_three_doors_each_with_output_that_fits(browser: Any, site: str) -> None:
    visit(browser, f"{site}/index.html")
    script = """return [...document.querySelectorAll('article section section')].slice(0, 3).map(section => {
        const output = section.querySelector('pre');
        return [section.querySelector('h2').firstChild.textContent, output.textContent.split(' ').slice(0, 3).join(' '),
                output.scrollWidth <= output.clientWidth];
    })"""
    assert browser.execute_script(script) == [
        ["Compare my block", "$ ctxbench compare", True],
        ["Choose a block", "$ ctxbench choose", True],
        ["Check in CI", "$ ctxbench check", True],
    ]


def test_all_blocks_are_sorted_filtered_and_exported(browser: Any, site: str) -> None:
    visit(browser, f"{site}/all-blocks.html", WIDTHS["phone"])
    assert browser.execute_script("return document.documentElement.scrollWidth") <= WIDTHS["phone"]
    visit(browser, f"{site}/all-blocks.html")
    sort = "[...document.querySelectorAll('button.sort')].find(button => button.textContent === 'Params (K)')"
    browser.execute_script(f"{sort}.focus()")
    browser.switch_to.active_element.send_keys("\ue007")  # Enter
    family = "document.querySelector('select[name=family]')"
    browser.execute_script(
        f"{family}.value = 'matrix decomposition'; {family}.dispatchEvent(new Event('input', {{bubbles: true}}))"
    )
    header, *rows = csv.reader(browser.execute_script("return formats.csv(shown())").splitlines())
    assert header[:4] == ["Block", "Family", "Params (K), counted", "MACs (G), counted"]
    assert [(row[0], row[2]) for row in rows] == [
        ("ema", "526"),
        ("ham_cd", "526"),
        ("ham_nmf", "526"),
        ("ham_vq", "526"),
    ]
    tabular = browser.execute_script("return formats.tex(shown())")
    assert tabular.startswith("\\begin{tabular}{llrr")
    assert "ham\\_cd & matrix decomposition & " in tabular


def test_each_page_is_there_as_markdown_whose_links_lead_somewhere(site: str) -> None:
    folder = Path(site.removeprefix("file://"))
    link = re.compile(r"\]\(([^)#\s]+)")
    listed = link.findall((folder / "llms.txt").read_text(encoding="utf-8"))
    assert listed == [*sorted(f"{name}.md" for name in PAGES), "blocks.csv"]
    for page in (folder / name for name in listed):
        text = page.read_text(encoding="utf-8")
        assert "<!--" not in text
        dead = [path for path in link.findall(text) if "://" not in path and not (page.parent / path).exists()]
        assert dead == [], page.name


def test_on_the_site_use_stands_before_results(browser: Any, site: str) -> None:
    visit(browser, f"{site}/index.html")
    captions = "return [...document.querySelectorAll('.sidebar-tree .caption')].map(each => each.textContent)"
    found = browser.execute_script(captions)
    assert found.index("Start") < found.index("Measure") < found.index("Predict") < found.index("Results")
