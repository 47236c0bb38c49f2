"""`cluster-run` on clusters of several nodes on this machine: real CPU cases, fake GPUs, nodes and drivers that die."""

import builtins
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
from conftest import Done

from ctxbench.base.errors import UsageError
from ctxbench.engine.progress import Quiet
from ctxbench.engine.run import resume
from ctxbench.model.read_suite import load
from ctxbench.model.record import Record
from ctxbench.report.write import write_report
from ctxbench.results.run_folder import RunFolder, run_folders
from ctxbench.results.sources import code_digest, digest
from ctxbench_science.cluster import cluster as on_cluster
from ctxbench_science.cluster import ray_slots
from ctxbench_science.cluster.ray_slots import connect
from ctxbench_science.cluster.sweep import SlotLost

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = [pytest.mark.processes, pytest.mark.long]

SuiteFile = Callable[..., Path]
# Seconds. Only what hangs takes so long.
LONGEST_S = 600
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
MODULES = ["sa", "a2"]
CRASHES = """
import os, signal, torch
from ctxbench import register

@register("crashes", title="Crashes")
class Crashes(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()

    def forward(self, x):
        if x.device.type != "meta":
            os.kill(os.getpid(), signal.SIGSEGV)
        return x
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    """A cluster of one node for all tests, which leave it as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")
        found = cluster_utils.Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.fixture
def nodes(node: Any) -> Iterator[Any]:
    """The cluster for a test that adds nodes, which are gone after it."""
    yield node
    for added in list(node.worker_nodes):
        node.remove_node(added)
    node.wait_for_nodes(timeout=LONGEST_S)


@pytest.fixture
def suite(suite_file: SuiteFile) -> Path:
    """Two cases with times."""
    return suite_file(MODULES, processes=1, timeout=LONGEST_S)


@pytest.fixture
def counts(suite_file: SuiteFile) -> Path:
    """Four cases without times: one process for each."""
    return suite_file(MODULES, ("params",), axes="batch = [1, 2]", timeout=LONGEST_S)


def in_a_process(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ctxbench", *map(str, arguments)]


def complete(path: Path) -> RunFolder:
    """The run folder, once it is checked that every case is there once, ok, and from one slot."""
    folder = RunFolder.open(path)
    frame = folder.frame()
    timed = "latency" in folder.meta["metrics"]
    assert sorted(frame["module"]) == sorted(MODULES if timed else [*MODULES, *MODULES])
    assert set(frame["status"]) == {"ok"}
    assert frame["latency_infer_ms"].gt(0).all() == timed
    assert set(frame["slot"]) <= set(folder.meta["environments"])
    for processes in folder.finished().values():
        assert set(processes) >= ({0, 1} if timed else {0})
        assert len({record["slot"] for record in processes.values()}) == 1
    assert folder.meta["state"] == "finished"
    return folder


def wait_for(folder: Path, rows: int, driver: subprocess.Popen[str]) -> None:
    """Until so many processes are on disk."""
    path = folder / "processes.csv"
    while not path.exists() or path.read_text().count("\n") <= rows:
        assert driver.poll() is None
        time.sleep(0.1)


def test_cases_are_spread_over_the_hosts_and_none_is_lost_with_one(nodes: Any, suite: Path, tmp_path: Path) -> None:
    before = builtins.print
    other = nodes.add_node(**NODE)

    class Removes(Quiet):
        removed = False

        def done(self, record: Record) -> None:
            if not self.removed:
                self.removed = True
                nodes.remove_node(other, allow_graceful=False)

    (run,) = on_cluster.run(load(str(suite)), nodes.address, out=tmp_path / "run", reporter=Removes())
    folder = complete(run.path)
    assert len(folder.meta["environments"]) == 2
    for environment in folder.meta["environments"].values():
        assert environment["torch_threads"] == 1  # OMP_NUM_THREADS of this process, not Ray's
    assert builtins.print is before  # Ray puts its own there when it has a message


def test_drivers_that_end_lose_nothing_finished(node: Any, suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for count, (death, arguments) in enumerate(
        [
            (signal.SIGINT, ["cluster-run", node.address, "--suite", suite, "--out", out]),
            (signal.SIGKILL, ["cluster-resume", node.address, out]),
        ],
        1,
    ):
        with subprocess.Popen(in_a_process(*arguments), stderr=subprocess.PIPE, text=True) as driver:
            wait_for(out, count, driver)
            driver.send_signal(death)
            _, said = driver.communicate(timeout=LONGEST_S)
        if death == signal.SIGINT:
            assert driver.returncode == 130
            assert f"continue with: ctxbench cluster-resume {node.address} {out}" in said
    before = {case for case, processes in RunFolder.open(out).finished().items() if set(processes) >= {0, 1}}
    assert len(before) < 2
    (run,) = on_cluster.resume(out, node.address)
    complete(run.path)
    environment = {**run.meta["environment"], "cpu": "Z80"}
    run.save_meta(environment=environment)
    with pytest.raises(UsageError, match=r"was measured on other devices than .* \(cpu: Z80 then"):
        on_cluster.resume(run.path, node.address)
    with pytest.raises(UsageError, match="is continued by another command: ctxbench cluster-resume"):
        resume(run.path)


def test_two_drivers_share_no_slot(node: Any, counts: Path, tmp_path: Path) -> None:
    drivers = [
        subprocess.Popen(in_a_process("cluster-run", node.address, "--suite", counts, "--out", tmp_path / name))
        for name in ("one", "two")
    ]
    assert [driver.wait(LONGEST_S) for driver in drivers] == [0, 0]
    spans = []
    for name in ("one", "two"):
        complete(tmp_path / name)
        spans.append([(tmp_path / name / file).stat().st_mtime for file in ("samples.csv", "processes.csv")])
    assert spans[0] != spans[1]


def test_kinds_of_device_do_not_mix(nodes: Any, counts: Path, tmp_path: Path) -> None:
    nodes.add_node(**NODE, env_vars={"MALLOC_TOP_PAD_": "1048576"})
    with pytest.raises(UsageError, match=r"differ \(malloc: .*so they do not share one run; with --each-device"):
        on_cluster.run(load(str(counts)), nodes.address, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    runs = on_cluster.run(load(str(counts)), nodes.address, out=tmp_path / "run", each_device=True)
    assert len(runs) == 2
    assert [run.path for run in runs] == run_folders(tmp_path / "run")
    for run in runs:
        assert len(complete(run.path).meta["environments"]) == 1
    assert runs[1].path.name == f"{runs[0].path.name}-2"
    page = write_report([run.path for run in runs], tmp_path / "report", []).page
    assert runs[1].path.name in page.read_text()


def test_each_gpu_is_a_slot_and_excludes_the_hosts_processors(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # no GPU is used: Ray counts them
    nodes.add_node(**{**NODE, "num_cpus": 2}, num_gpus=2)
    wait = ray.wait
    with connect(nodes.address) as cluster:
        assert cluster.has_gpu()
        slots = cluster.slots("cuda", "keep", {})
        assert sorted(slot.name.rpartition("/")[2] for slot in slots) == ["cuda0", "cuda1"]
        cores = len(os.sched_getaffinity(0))
        assert [slot.environment["cpu_usable"] for slot in slots] == [max(cores // 2, 1)] * 2
        # The time in which a slot must be free has passed as soon as one is.
        monkeypatch.setattr(ray, "wait", lambda answers, num_returns, timeout: wait(answers, timeout=LONGEST_S))
        (free,) = cluster.slots("cpu", "keep", {})  # that of the first node
        assert free.name.split("/")[1] != slots[0].name.split("/")[1]
        assert "was not free for 120 s" in cluster.left_out[0]
        assert not ray.available_resources().get("GPU")
        monkeypatch.setattr(ray, "wait", lambda answers, num_returns, timeout: ([], answers))
        with pytest.raises(UsageError, match=r"no slot of the cluster at .* can be used"):
            cluster.slots("cuda", "keep", {})


def test_a_slot_that_is_gone_or_silent_is_lost(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(node.address) as cluster:
        (slot,) = cluster.slots("cpu", "keep", {})
        ray.kill(slot.actor)
        with pytest.raises(SlotLost, match=f"{slot.name} is gone"):
            slot.call("renew", 10)
        again = slot.replacement()
        assert again is not None
        assert again.name == slot.name
        monkeypatch.setattr(ray_slots, "SILENT_S", 0.0)
        with pytest.raises(SlotLost, match=f"{slot.name} was silent for 0.0001 s"):
            again.call("describe", 0.0001, [])


def test_how_a_child_ended_is_known_in_an_actor(
    node: Any, tmp_path: Path, suite_file: SuiteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # below which a suite may name code
    module = tmp_path / "crashes.py"
    module.write_text(CRASHES)
    suite = suite_file([f"{module}:Crashes"], processes=1)
    (run,) = on_cluster.run(load(str(suite)), node.address, out=tmp_path / "run")
    (row,) = run.frame().to_dict("records")
    assert row["status"] == "crashed"
    assert "SIGSEGV" in row["message"]


def test_a_host_must_have_the_same_code_and_files(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/nowhere/my.py": "digest", "/etc/hostname": digest([Path("/etc/hostname")])}
    refused = r"has no /nowhere/my\.py: put it in a folder that all hosts share"
    with connect(node.address) as cluster, pytest.raises(UsageError, match=refused):
        cluster.slots("cpu", "keep", files)
    told = {"environment": {"packages": {"ctxbench": "0"}}, "code": code_digest(), "files": files}
    assert ray_slots._checked(told, "host", files) == told["environment"]
    with pytest.raises(UsageError, match="host has another version of /etc/hostname"):
        ray_slots._checked(told, "host", {"/etc/hostname": "digest"})
    monkeypatch.setattr(ray_slots, "code_digest", lambda: "other")
    with pytest.raises(UsageError, match=r"host has another ctxbench \(.*install the same code on every host"):
        ray_slots._checked(told, "host", {})


def test_a_host_on_which_ctxbench_does_not_start_is_named(nodes: Any, counts: Path, tmp_path: Path) -> None:
    (tmp_path / "ctxbench.py").write_text("raise ModuleNotFoundError(\"No module named 'ctxbench'\")")
    nodes.add_node(**NODE, env_vars={"PYTHONPATH": str(tmp_path)})

    class Notes(Quiet):
        notes: ClassVar[list[str]] = []

        def note(self, text: str) -> None:
            self.notes.append(text)

    shown = Notes()
    on_cluster.run(load(str(counts)), nodes.address, out=tmp_path / "run", reporter=shown)
    (said,) = shown.notes
    assert re.search(r"a slot of \S+ did not start: .*the measuring process ended with code 1", said)
    complete(tmp_path / "run")


def test_a_suite_for_cuda_needs_a_gpu(node: Any, suite: Path, command: Callable[..., Done]) -> None:
    for device, sentence in (("cuda", "has no GPU"), ("cuda:1", "on a cluster --device is cpu or cuda")):
        ended = command("cluster-run", node.address, "--suite", suite, "--device", device)
        assert ended.returncode == 2
        assert sentence in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ray://host:10001"], "ADDRESS is local, or HOST:PORT"),
        (["local", "--static"], "No such option: --static"),
        ([], "Missing argument 'ADDRESS'"),
    ],
)
def test_wrong_arguments_are_a_sentence(arguments: list[str], sentence: str, command: Callable[..., Done]) -> None:
    ended = command("cluster-run", "--suite", "quick", *arguments)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_address_where_no_ray_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_slots, "ANSWER_S", 2.0)
    sentence = "no Ray cluster of the version that is installed here answers at 127.0.0.1:1"
    with pytest.raises(UsageError, match=sentence), connect("127.0.0.1:1"):
        pass


def test_without_ray_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxbench.base.extras.find_spec", lambda name: None)
    sentence = r'cluster-run needs ray: in the clone, pip install -c constraints.txt "\.\[ray\]"'
    with pytest.raises(UsageError, match=sentence), connect("local"):
        pass


def listening(pid: int) -> set[str]:
    """The addresses on which a process and all that it started wait for connections."""
    with contextlib.suppress(psutil.NoSuchProcess):
        own = {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
        found = psutil.net_connections(kind="inet")
        return {each.laddr.ip for each in found if each.laddr and each.status == psutil.CONN_LISTEN and each.pid in own}
    return set()


def test_local_uses_this_host_and_listens_on_the_loopback_only(counts: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_memory_monitor_refresh_ms"}
    arguments = in_a_process("cluster-run", "local", "--suite", counts, "--out", tmp_path / "run")
    heard: set[str] = set()
    with (tmp_path / "said").open("w") as said:
        driver = subprocess.Popen(arguments, stderr=said, env=environment)
        while driver.poll() is None:
            heard |= listening(driver.pid)
            time.sleep(0.1)
    assert driver.returncode == 0
    complete(tmp_path / "run")
    assert "[4/4] " in (tmp_path / "said").read_text()
    assert {address.removeprefix("::ffff:") for address in heard} == {ray_slots.LOOPBACK}
