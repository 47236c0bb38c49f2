"""The slots of a Ray cluster: an actor for each GPU, or for the processors of each host. Only this file imports ray."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

from ctxbench.base import clocks as this_machine
from ctxbench.base.errors import EngineError, UsageError
from ctxbench.base.extras import lacking
from ctxbench.engine.client import KILL_S
from ctxbench.engine.exit import Exit
from ctxbench.engine.one_process import Executor
from ctxbench.results.environment import differences
from ctxbench.results.sources import code_digest
from ctxbench.worker.protocol import Reply, Task
from ctxbench_science.cluster.ray_actor import OPEN_S, Measurer
from ctxbench_science.cluster.sweep import SlotLost

# Starts a cluster on this host alone.
LOCAL = "local"
LOOPBACK = "127.0.0.1"
# Read by Ray when it is imported, on Linux too: without clusters, its processes listen on the loopback only.
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Seconds for which a slot may be silent beyond what its task may take.
SILENT_S = 60.0
# Bytes. Ray would take 30 % of the host's memory for its object store; what crosses here are a few kilobytes a case.
OBJECT_STORE = 100 * 2**20
# Seconds in which a cluster must answer.
ANSWER_S = 20.0
# What ray.nodes() tells of one.
Node = Mapping[str, Any]


@dataclass
class RaySlot:
    """A slot and its actor on one node of the cluster."""

    name: str
    environment: Mapping[str, Any]
    actor: Any
    again: "Callable[[], list[RaySlot]]"

    @property
    def executor(self) -> Executor:
        return _Remote(self, kept=True)

    @contextmanager
    def launch(self) -> Iterator[Executor]:
        self.call("renew", OPEN_S)
        yield _Remote(self, kept=False)

    def replacement(self) -> "RaySlot | None":
        same = (slot for slot in self.again() if not differences(self.environment, slot.environment))
        return next(same, None)

    def call(self, method: str, timeout_s: float, *arguments: Any) -> Any:
        """Have the actor do something. SlotLost if it is gone, or silent for too long, and is then ended."""
        import ray

        seconds = (timeout_s + SILENT_S) * this_machine.here.pace
        try:
            return ray.get(getattr(self.actor, method).remote(*arguments), timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            ray.kill(self.actor)
            raise SlotLost(f"{self.name} was silent for {timeout_s + SILENT_S:g} s") from None
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, EngineError):
                raise SlotLost(f"on {self.name} {error.cause}") from None
            raise  # a defect of the code above
        except ray.exceptions.RayError as error:
            raise SlotLost(f"{self.name} is gone: {_lines(error)[0]}") from None


@dataclass(frozen=True)
class _Remote:
    """Performs tasks on a slot."""

    slot: RaySlot
    kept: bool

    def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
        replies, ended = self.slot.call("run", (timeout_s or OPEN_S) + KILL_S, task, timeout_s, self.kept)
        for reply in replies:
            on_message(reply)
        return ended  # type: ignore[no-any-return]  # what an actor returns is untyped


@dataclass
class Cluster:
    """A Ray cluster that this process is connected to."""

    address: str
    nodes: list[dict[str, Any]]
    left_out: list[str] = field(default_factory=list)

    def has_gpu(self) -> bool:
        return any(node["Resources"].get("GPU", 0) >= 1 for node in self.nodes)

    def slots(self, kind: str, malloc: str, files: Mapping[str, str]) -> list[RaySlot]:
        """All slots of a kind of device that become free within OPEN_S, in the order of hosts.

        `files` are those that the cases need, and their digests. Why a slot is left out goes to `left_out`. UsageError
        if the cluster has no such device, if no slot is free, or if a host has other code or lacks a file.
        """
        places = [node for node in self.nodes for _ in range(_count(node, kind))]
        if not places:
            hosts = ", ".join(node["NodeManagerHostname"] for node in self.nodes)
            raise UsageError(f"the cluster at {self.address} has no GPU (hosts: {hosts}); use --device cpu")
        slots = self._open(places, kind, malloc, files)
        if not slots:
            raise UsageError(f"no slot of the cluster at {self.address} can be used: {'; '.join(self.left_out)}")
        return slots

    def _open(self, places: Sequence[Node], kind: str, malloc: str, files: Mapping[str, str]) -> list[RaySlot]:
        """The slots at these places, all asked for at once."""
        import ray

        actors = [self._start(node, kind, malloc) for node in places]
        answers = [actor.describe.remote(list(files)) for actor in actors]
        ready, _ = ray.wait(answers, num_returns=len(answers), timeout=OPEN_S * this_machine.here.pace)
        slots = []
        for node, actor, answer in zip(places, actors, answers, strict=True):
            host = f"{node['NodeManagerHostname']}/{node['NodeID'][:6]}"
            if answer not in ready:
                ray.kill(actor)
                self.left_out.append(f"a slot of {host} was not free for {OPEN_S:g} s")
                continue
            try:
                facts = ray.get(answer)
            except ray.exceptions.RayError as error:
                self.left_out.append(f"a slot of {host} did not start: {_lines(error)[-1]}")
                continue
            name = f"{host}/{kind}{facts['gpu']}" if kind == "cuda" else host
            again = partial(self._open, [node], kind, malloc, files)
            slots.append(RaySlot(name, _checked(facts, name, files), actor, again))
        return slots

    def _start(self, node: Node, kind: str, malloc: str) -> Any:
        """Ask for an actor that has a GPU, or the whole host, to itself."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        resources = node["Resources"]
        share = 1 / _count(node, kind)
        # Each node has such a resource. A slot of a host's processors takes it whole, so it excludes the GPUs' slots.
        own = next(name for name in resources if name.startswith("node:") and name != "node:__internal_head__")
        options = ray.remote(Measurer).options(
            num_gpus=int(kind == "cuda"),
            num_cpus=int(resources.get("CPU", 0) * share),
            resources={own: int(share * 10_000) / 10_000},
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        return options.remote(os.getcwd(), os.environ.get("OMP_NUM_THREADS"), malloc, _count(node, kind))


@contextmanager
def connect(address: str) -> Iterator[Cluster]:
    """A cluster: one that is started on this host alone (LOCAL), or the one at an address. Its actors end with this."""
    if not this_machine.FORKS:
        raise UsageError("cluster-run measures on Linux only; run measures the same suite on this machine")
    if sentence := lacking("cluster-run", "ray"):
        raise UsageError(sentence)
    if address == LOCAL:
        os.environ[CLUSTERS] = "0"
    import ray

    if address != LOCAL:
        _check_address(address)
    handler = signal.getsignal(signal.SIGTERM)
    # Ray would put a `print` of its own into this process, for progress bars that ctxbench does not draw.
    os.environ.setdefault("RAY_TQDM_PATCH_PRINT", "0")
    try:
        if address == LOCAL:
            # Its monitor would kill an actor whose measuring process takes much memory, which is that case's to fail.
            os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
            ray.init("local", include_dashboard=False, object_store_memory=OBJECT_STORE, **_QUIET)
        else:
            ray.init(address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"the Ray cluster at {address} cannot be used: {_lines(error)[0]}") from None
    finally:
        os.environ.pop(CLUSTERS, None)
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, handler)
    try:
        cluster = Cluster(address, [node for node in ray.nodes() if node["Alive"]])
        if address == LOCAL and any(node["NodeManagerAddress"] != LOOPBACK for node in cluster.nodes):
            cluster.left_out.append("Ray listens on every interface of this host: who reaches it can run code here")
        yield cluster
    finally:
        ray.shutdown()


_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


def _check_address(address: str) -> None:
    """UsageError unless a Ray cluster answers; `ray.init` would wait for minutes."""
    if not re.fullmatch(r"[^:/]+:\d+", address):
        raise UsageError(f"ADDRESS is {LOCAL}, or HOST:PORT of a cluster that this host is a part of; not {address!r}")
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        subprocess.run(command, capture_output=True, check=True, timeout=ANSWER_S * this_machine.here.pace)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        if b"InvalidAuthToken" in (error.stderr or b""):
            raise UsageError(
                f"the Ray cluster at {address} wants a token: set RAY_AUTH_MODE=token, and put the cluster's token "
                "into ~/.ray/auth_token"
            ) from None
        raise UsageError(f"no Ray cluster of the version that is installed here answers at {address}") from None


def _checked(facts: Mapping[str, Any], name: str, files: Mapping[str, str]) -> Mapping[str, Any]:
    """The environment of a slot. UsageError if it runs other code, or lacks a file that the cases need."""
    if facts["environment"] is None:
        raise UsageError(
            f"{name} could not tell what it is: {(facts['output'].strip().splitlines() or ['nothing'])[-1]}"
        )
    if facts["code"] != code_digest():
        there, here = facts["environment"]["packages"]["ctxbench"], version("ctxbench")
        raise UsageError(f"{name} has another ctxbench ({there}, here {here}): install the same code on every host")
    for file, expected in files.items():
        if (found := facts["files"][file]) != expected:
            state = "another version of" if found else "no"
            raise UsageError(f"{name} has {state} {file}: put it in a folder that all hosts share, or copy it there")
    environment: Mapping[str, Any] = facts["environment"]
    return environment


def _count(node: Node, kind: str) -> int:
    """The slots of a node: its GPUs, or one for its processors."""
    return int(node["Resources"].get("GPU", 0)) if kind == "cuda" else 1


def _lines(error: BaseException) -> list[str]:
    """Lines of an error's message; its type if that is empty."""
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
