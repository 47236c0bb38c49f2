"""A suite on the devices of a Ray cluster, one run folder for each kind of device."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.engine import progress
from ctxbench.engine.one_process import Plan
from ctxbench.engine.run import finish, locked, reopen, stopped
from ctxbench.model.grid import Suite
from ctxbench.model.read_suite import restore
from ctxbench.results.environment import differences
from ctxbench.results.plan import RunPlan
from ctxbench.results.run_folder import RunFolder, default_path, run_folders
from ctxbench.results.run_meta import CONTINUED
from ctxbench.results.sources import check_own_code, digest, named_code
from ctxbench_science.cluster.ray_slots import Cluster, RaySlot, connect
from ctxbench_science.cluster.sweep import SweepPart, bundles, sweep

# The command that continues a run, before the address.
GOES_ON = "ctxbench cluster-resume"


def run(
    suite: Suite,
    address: str,
    *,
    each_device: bool = False,
    counter: str = "ctxbench",
    out: str | Path | None = None,
    force: bool = False,
    reporter: progress.Quiet | None = None,
) -> list[RunFolder]:
    """Measure a suite on all devices of the cluster at `address` (HOST:PORT, or `local`); the runs.

    All slots must be of one kind, and share the cases; with `each_device` every kind of device measures every case, in
    a run folder of its own inside `out`. Raises UsageError if the slots differ, no slot is free, or a host lacks what
    the cases need.
    """
    path = Path(out) if out is not None else default_path(suite.name)
    # Each slot has its own cases, so a budget for the whole suite means nothing to it.
    settings = Plan(suite.file.measure.model_copy(update={"total_s": None}), suite.file.metrics, counter, force)
    with ExitStack() as stack:
        shown = stack.enter_context(reporter or progress.Quiet())
        cluster = stack.enter_context(connect(address))
        plan = RunPlan(suite, suite.cases("cuda" if cluster.has_gpu() else "cpu"))
        kinds = _kinds(_slots(cluster, plan, shown))
        if len(kinds) > 1 and not each_device:
            first, other = kinds[0][0], kinds[1][0]
            differing = differences(first.environment, other.environment, "{name}: {old} and {new}")
            raise UsageError(
                f"{first.name} and {other.name} differ ({'; '.join(differing)}), so they do not share "
                "one run; with --each-device every kind of device measures every case"
            )
        places = _folders(path, kinds, plan.cases[0].device) if each_device else {path: kinds[0]}
        parts = []
        for place, slots in places.items():
            meta = plan.meta(slots[0].environment, counter=counter, metrics=settings.metrics, force=force)
            stack.enter_context(locked(place))
            facts = {"environments": _environments(slots), "continued_by": f"{GOES_ON} {address}"}
            folder = RunFolder.create(place, {**meta, **facts})
            parts.append(_part(plan, folder, slots))
        return _measured(parts, settings, shown)


def resume(
    path: str | Path,
    address: str,
    *,
    retry_failed: bool = False,
    run_its_code: bool = False,
    reporter: progress.Quiet | None = None,
) -> list[RunFolder]:
    """Continue what `run` began in `path`, on the same cluster or on one with devices of the same kind.

    A run whose kind of device is not there is left as it is. Raises UsageError if none of them is there.
    """
    folders = [RunFolder.open(each) for each in run_folders(Path(path))]
    with ExitStack() as stack:
        for folder in folders:
            if not isinstance(folder.meta.get("environments"), dict):
                raise UsageError(f"{folder.path} was measured on one machine: ctxbench resume continues it")
            check_own_code(folder.path, folder.meta, named_code(folder.meta), run_its_code)
            folder.require(CONTINUED)
            stack.enter_context(locked(folder.path))
        shown = stack.enter_context(reporter or progress.Quiet())
        cluster = stack.enter_context(connect(address))
        meta = folders[0].meta
        suite = restore(meta["suite"], folders[0].path / "run.json", meta["definition"], run_its_code)
        plan = RunPlan(suite, suite.cases("cuda" if meta["environment"]["gpus"] else "cpu"))
        kinds = _kinds(_slots(cluster, plan, shown))
        parts = []
        for folder in folders:
            here = [slots for slots in kinds if not differences(folder.meta["environment"], slots[0].environment)]
            if here:
                settings = reopen(folder, plan, suite.file.measure, retry_failed, shown)
                environments = {**folder.meta["environments"], **_environments(here[0])}
                folder.save_meta(environments=environments, continued_by=f"{GOES_ON} {address}")
                parts.append(_part(plan, folder, here[0]))
        if not parts:
            changed = differences(meta["environment"], kinds[0][0].environment)
            raise UsageError(f"{path} was measured on other devices than {kinds[0][0].name} ({'; '.join(changed)})")
        return _measured(parts, settings, shown)


def _slots(cluster: Cluster, plan: RunPlan, shown: progress.Quiet) -> list[RaySlot]:
    """The slots for the device of the cases, on which all their modules are."""
    asked = sorted({case.device for case in plan.cases})
    if len(asked) > 1 or ":" in asked[0]:
        raise UsageError(f"on a cluster --device is cpu or cuda, without a number; the cases have {', '.join(asked)}")
    files = sorted({file for case in plan.cases for file in case.sources.values()})
    slots = cluster.slots(asked[0], plan.suite.file.measure.malloc, {file: digest([Path(file)]) for file in files})
    for sentence in cluster.left_out:
        shown.note(sentence)
    for slot in slots:
        try:
            devices.check(asked[0], slot.environment)
        except UsageError as error:
            raise UsageError(f"{slot.name}: {error}") from None
    return slots


def _kinds(slots: Sequence[RaySlot]) -> list[list[RaySlot]]:
    """The slots by what their measurements depend on."""
    kinds: list[list[RaySlot]] = []
    for slot in slots:
        same = next((kind for kind in kinds if not differences(kind[0].environment, slot.environment)), None)
        if same is None:
            kinds.append(same := [])
        same.append(slot)
    return kinds


def _folders(path: Path, kinds: Sequence[Sequence[RaySlot]], device: str) -> dict[Path, Sequence[RaySlot]]:
    """A folder for each kind of device, named by its product, with a number where kinds of one product differ."""
    found: dict[Path, Sequence[RaySlot]] = {}
    seen: Counter[str] = Counter()
    for slots in kinds:
        product = devices.product(device, slots[0].environment)
        name = re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-")
        seen[name] += 1
        found[path / (name if seen[name] == 1 else f"{name}-{seen[name]}")] = slots
    return found


def _environments(slots: Sequence[RaySlot]) -> dict[str, Mapping[str, Any]]:
    return {slot.name: slot.environment for slot in slots}


def _part(plan: RunPlan, folder: RunFolder, slots: Sequence[RaySlot]) -> SweepPart:
    compared = {name for _, name in plan.suite.named_in_keys()}
    return SweepPart(folder, bundles(plan.cases, compared), slots)


def _measured(parts: Sequence[SweepPart], plan: Plan, shown: progress.Quiet) -> list[RunFolder]:
    with _states(parts, plan):
        sweep(parts, plan, shown)
    for part in parts:
        finish(part.folder, shown)
    return [part.folder for part in parts]


@contextmanager
def _states(parts: Sequence[SweepPart], plan: Plan) -> Iterator[None]:
    """Write how a sweep ended into its folders."""
    state = "interrupted"
    try:
        yield
        state = "finished"
    except KeyboardInterrupt:
        # What a case has that is not complete is measured again.
        finished = [processes for part in parts for processes in part.folder.finished().values()]
        done = sum(plan.processes for each in finished if len(each) > plan.processes)
        total = sum(len(part.cases) for part in parts) * plan.processes
        path = parts[0].folder.path if len(parts) == 1 else parts[0].folder.path.parent
        raise stopped(path, done, total, parts[0].folder.meta["continued_by"]) from None
    finally:
        with suppress(UsageError):  # a full disk has been reported
            for part in parts:
                part.folder.finish(state)
