"""Below a folder that a person named, no command writes through a link, and none replaces what is not of ctxbench."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from report_data import table3_run

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.report.write import write_report
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.tables import tables

Command = Callable[..., Done]
OWN = "of a person"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    file = tmp_path / "outside" / "authorized_keys"
    file.parent.mkdir()
    file.write_text(OWN)
    return file


def assert_untouched(outside: Path) -> None:
    assert {each.name: each.read_text() for each in outside.parent.iterdir()} == {outside.name: OWN}


@pytest.mark.slow
def test_no_file_of_a_report_is_written_through_a_link(tmp_path: Path, outside: Path) -> None:
    run = table3_run(tmp_path / "run")
    whole = write_report([run], tmp_path / "whole", ["cost"], formats=["png"])
    files = [file.relative_to(tmp_path / "whole") for file in whole.files]
    assert len(files) >= 1 + 4 + 2
    targets = itertools.cycle((outside, outside.with_name("new")))  # a link to what is not there makes it
    for number, (file, target) in enumerate(zip((Path("tables"), Path("figures"), *files), targets, strict=False)):
        out = tmp_path / f"out-{number}"
        (out / file).parent.mkdir(parents=True)
        (out / file).symlink_to(target.parent if number < 2 else target)
        for force in (False, True):
            with pytest.raises(UsageError, match=rf"{out / file}.* is (not of ctxbench|a link|a file)"):
                write_report([run], out, ["cost"], formats=["png"], force=force)
        assert_untouched(outside)


def test_a_report_that_is_named_no_folder_follows_no_link(
    tmp_path: Path, outside: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ctxbench-report").symlink_to(outside.parent)
    done = command("report", table3_run(tmp_path / "run"))
    assert (done.returncode, "cannot write to ctxbench-report: it is a link" in done.stderr) == (2, True)
    assert_untouched(outside)


@pytest.mark.parametrize("name", [*tables(), "run.json", "log.txt", ".lock"])
def test_no_file_of_a_run_is_written_through_a_link(tmp_path: Path, outside: Path, name: str, command: Command) -> None:
    run = table3_run(tmp_path / "run")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    folder = RunFolder(run, {"suite": "x"})
    writes: list[Callable[[], object]] = [
        lambda: disk.append(run / name, b"x\n"),
        lambda: disk.replace(run / name, b"x\n"),
        lambda: disk.write(run / name, "x\n", "x"),
    ]
    if name == "run.json":
        writes.append(folder.save_meta)
    if name == "log.txt":
        writes.append(lambda: folder.log("case", "text"))
    for write in writes:
        with pytest.raises(UsageError, match=rf"{run / name}:? (it is a link|already exists)"):
            write()
    assert command("resume", run).returncode == 2
    assert command("run", "--static", "--modules", "se", "--out", run).returncode == 2
    assert_untouched(outside)


def test_a_link_that_a_person_names_is_followed(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    disk.write(tmp_path / "link", "new", is_named=True)
    assert (outside.read_text(), (tmp_path / "link").is_symlink()) == ("new", True)
    run = table3_run(tmp_path / "run")
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    assert write_report([run], tmp_path / "out", []).page.is_file()


@pytest.mark.slow
def test_a_report_replaces_its_own_files_alone(tmp_path: Path, command: Command) -> None:
    run, site = table3_run(tmp_path / "run"), tmp_path / "site"
    files = [site / place for place in ("index.html", "tables/table3.csv", "figures/cost.svg")]
    words = ("report", run, "--figures", "cost", "--out", site)
    for own in files:
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(OWN)
        done = command(*words)
        assert (done.returncode, own.read_text()) == (2, OWN)
        advice = "choose another folder, remove it, or add --force"
        assert done.stderr.endswith(f"ctxbench: {own} is not of ctxbench and was not changed; {advice}\n")
        own.unlink()
    for own in files:
        own.write_text(OWN)
    for options in (("--force",), ()):  # once it is a report, it is written again
        assert command(*words, *options).returncode == 0
        assert OWN not in [own.read_text() for own in files]


def test_a_run_does_not_write_into_a_log_of_one_s_own(tmp_path: Path, command: Command) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "log.txt").write_text(OWN)
    done = command("run", "--static", "--modules", "se", "--out", tmp_path / "p")
    assert (done.returncode, (tmp_path / "p" / "log.txt").read_text()) == (2, OWN)
    assert "already holds a log.txt" in done.stderr


@pytest.mark.plugin("profile")
def test_traces_replace_their_own_alone(tmp_path: Path) -> None:
    from ctxbench.plugins.profile.traces import NAMES, check_traces

    for name in NAMES:
        (tmp_path / name).write_text(json.dumps({"exporter": "ctxbench"}))
        check_traces(tmp_path)
        (tmp_path / name).write_text("{}")
        with pytest.raises(UsageError, match=f"{name} is not of ctxbench"):
            check_traces(tmp_path)
        (tmp_path / name).unlink()


def test_a_part_is_made_anew(tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "drawn")
    (tmp_path / ".x.drawn.part").symlink_to(outside)
    with pytest.raises(UsageError, match="File exists"):
        disk.write(tmp_path / "x", "new")
    assert_untouched(outside)
    shutil.rmtree(outside.parent)
    assert not os.path.lexists(tmp_path / "x")
