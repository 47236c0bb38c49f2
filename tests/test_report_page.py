"""The report as written: its files, its page, what is escaped, and that it needs neither torch nor a network."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_data import add, definition, new_run, record, table3_run

from ctxbench.base.errors import UsageError
from ctxbench.base.notes import Note
from ctxbench.report.write import FORMATS, write_report

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

# What is drawn of a run of Table 3 on one device; `test_report_figures` says why.
FIGURES = ("cost", "pareto", "published", "split")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


class Elements(HTMLParser):
    """Collects the elements of a page: tag and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(page: Path) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    report = write_report([table3_run(folder / "run", failed=["sa"])], folder / "out")
    return Path(report.page)


def test_a_report_has_every_file(page: Path) -> None:
    found = {path.relative_to(page.parent).as_posix() for path in page.parent.rglob("*") if path.is_file()}
    figures = {f"figures/{name}.svg" for name in FIGURES}
    assert found == {"index.html"} | figures | {f"tables/table3.{kind}" for kind in FORMATS}


def test_the_page_needs_nothing_from_outside(page: Path) -> None:
    for tag, attributes in elements(page):
        assert tag not in ("link", "iframe", "object", "base")
        for name in ("src", "href", "xlink:href"):
            address = attributes.get(name)
            if address and not address.startswith(("#", "data:")):
                assert tag == "a"  # a figure beside the page
                assert (page.parent / address).is_file()
    text = page.read_text(encoding="utf-8")
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_ids_are_unique_and_every_reference_leads_somewhere(page: Path) -> None:
    found = elements(page)
    ids = [attributes["id"] for _, attributes in found if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for _, attributes in found:
        for name in ("href", "xlink:href", "aria-labelledby"):
            address = attributes.get(name) or ""
            if address.startswith("#") or (address and name == "aria-labelledby"):
                assert address.removeprefix("#") in ids


def test_the_page_starts_with_its_summary_and_warns_after_the_tables(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    start = text.index('id="warnings"')
    places = [
        text.index(mark) for mark in ('id="summary"', "<nav", 'id="table-1-section"', 'id="warnings"', "<figure>")
    ]
    assert places == sorted(places)
    assert 'href="#warnings"' in text[: places[2]]
    assert "sa: oom: out of memory" in text[start : text.index("</section>", start)]


def test_each_figure_has_its_downloads_and_its_command(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in FIGURES:
        section = text[text.index(f'id="figure-{name}"') :]
        section = section[: section.index("</section>")]
        assert f'download="{name}.svg"' in section
        assert f'download="{name}.png"' not in section  # nobody asked for it
        assert f"ctxbench report run --out out --figures {name}</code>" in section  # no path of this machine


def test_each_time_says_its_interval_and_samples(page: Path) -> None:
    details = [a.get("data-detail") or "" for tag, a in elements(page) if tag == "td" and a.get("tabindex") == "-1"]
    times = [detail for detail in details if "samples" in detail]
    assert len(times) == 6
    start = r"ms, 5 processes, 31 samples, \d+ outliers kept, ended by interval, 95.0% interval \[.*\]"
    assert all(re.search(rf"{start}, spread between processes 0\.\d%, within [01]\.\d%, drift", t) for t in times)


def test_everything_from_outside_is_escaped(tmp_path: Path) -> None:
    meta = {"title": HOSTILE, "source": HOSTILE}
    environment = {"cpu": HOSTILE, "packages": {"torch": HOSTILE}, HOSTILE: HOSTILE}
    folder = new_run(
        tmp_path / "run <b>", suite=f"../{HOSTILE}", command=HOSTILE, environment=environment,
        definition=definition(**meta, published=None),
    )  # fmt: skip
    add(folder, record("sa", latency_infer_ms=2.0, latency_train_ms=3.0))
    hostile = record(HOSTILE, title=HOSTILE, family=HOSTILE, status="error", message=HOSTILE)
    hostile.note(Note("remark", {"text": HOSTILE}))
    hostile.take({"latency_infer_ms": 1.0, "latency_train_ms": 2.0, "memory_marks": json.dumps([HOSTILE])})
    add(folder, hostile)
    report = write_report([folder.path], tmp_path / "out")
    found = elements(report.page)
    assert sum(tag == "script" for tag, _ in found) == 1
    assert not any(tag in ("img", "b") for tag, _ in found)
    assert not any(name.startswith("on") for _, attributes in found for name in attributes)
    assert all(path.resolve().is_relative_to((tmp_path / "out").resolve()) for path in report.files)
    assert html.escape(HOSTILE) in report.page.read_text(encoding="utf-8").replace("&#34;", "&quot;").replace(
        "&#39;", "&#x27;"
    )


def test_only_our_own_script_may_run(page: Path) -> None:
    policy = next(a["content"] for tag, a in elements(page) if tag == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "'unsafe-inline'" not in policy[policy.index("script-src") :]


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    run = table3_run(tmp_path / "run")
    contents = []
    for _ in range(2):
        report = write_report([run], tmp_path / "out", ["pareto"], formats=["png", "pdf"])
        contents.append({path.name: path.read_bytes() for path in report.files})
    assert {"pareto.svg", "pareto.png", "pareto.pdf"} < contents[0].keys()
    assert contents[0] == contents[1]
    assert b"Matplotlib" not in contents[0]["pareto.svg"] + contents[0]["pareto.png"]


def test_several_runs_share_a_page(tmp_path: Path) -> None:
    runs = [table3_run(tmp_path / "one"), table3_run(tmp_path / "two", scale=2.0, seed=5)]
    report = write_report(runs, tmp_path / "out", [])
    text = report.page.read_text(encoding="utf-8")
    assert "2 runs of table3" in text
    assert "Table 3 at [1, 512, 128, 128] (one)" in text
    assert (tmp_path / "out" / "tables" / "table3-compared.csv").exists()
    assert (tmp_path / "out" / "tables" / "table3-2.md").exists()


def test_wrong_input_gets_a_sentence(tmp_path: Path) -> None:
    empty = new_run(tmp_path / "empty")
    with pytest.raises(UsageError, match="holds no record yet"):
        write_report([empty.path], tmp_path / "out")
    with pytest.raises(UsageError, match="is no run folder"):
        write_report([tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(UsageError, match="at least one run folder"):
        write_report([], tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        write_report([table3_run(tmp_path / "run")], tmp_path / "file", [])
