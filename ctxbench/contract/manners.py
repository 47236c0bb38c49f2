"""Check of a module's manners: it prints nothing and leaves torch's global state as it found it."""

import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import torch

from ctxbench.contract.subject import Finding, Subject, failed, passed

SETTINGS: dict[str, Callable[[], Any]] = {
    "torch.get_num_threads": torch.get_num_threads,
    "torch.get_default_dtype": torch.get_default_dtype,
    "torch.get_default_device": torch.get_default_device,
    "torch.is_grad_enabled": torch.is_grad_enabled,
    "torch.is_anomaly_enabled": torch.is_anomaly_enabled,
    "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled,
    "torch.get_float32_matmul_precision": torch.get_float32_matmul_precision,
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.backends.cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "torch.backends.cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "torch.backends.mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
}


def quiet(subject: Subject) -> Finding:
    """Building, a training step and an eval forward print nothing."""
    with captured() as text:
        _use(subject)
    printed = text().strip()
    if printed:
        return failed(f"it prints {printed.splitlines()[0]!r}", "use the logging module, or drop the line")
    return passed("nothing on stdout or stderr")


def global_state(subject: Subject) -> Finding:
    """Threads, default dtype, gradient mode and flags stay; the generators are drawn from, never reseeded."""
    before = {name: read() for name, read in SETTINGS.items()}
    _use(subject)
    changed = [name for name, read in SETTINGS.items() if read() != before[name]]
    if changed:
        name = changed[0]
        return failed(
            f"{name} was {before[name]} and is {SETTINGS[name]()}", "set it for a block and set it back, or not at all"
        )
    first, second = _generators_after(subject, 11), _generators_after(subject, 12)
    reseeded = [name for name in first if first[name] == second[name]]
    if reseeded:
        return failed(
            f"{reseeded[0]} is reseeded: after two different seeds it is left in the same state",
            "draw from the generator as it is, or from a torch.Generator of your own",
        )
    return passed(f"{len(SETTINGS)} settings unchanged, no generator reseeded")


@contextmanager
def restored() -> Iterator[None]:
    """Put back the settings that a module is most likely to change, for the checks and the caller that come after."""
    threads, dtype, gradients = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)


@contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Collect what Python prints and what goes to file descriptors 1 and 2 by any other way."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    stream = StringIO()
    with tempfile.TemporaryFile() as file, redirect_stdout(stream), redirect_stderr(stream):

        def text() -> str:
            file.seek(0)
            return stream.getvalue() + file.read().decode(errors="replace")

        collected = ""
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: collected
        finally:
            for target, source in enumerate(kept, start=1):
                os.dup2(source, target)
                os.close(source)
            collected = text()


def _use(subject: Subject) -> None:
    """Build, one training step, one eval forward."""
    module = subject.build()
    x = subject.image(dtype=torch.float32)
    module.train()(x).sum().backward()
    with torch.no_grad():
        module.eval()(x)


def _generators_after(subject: Subject, seed: int) -> dict[str, bytes]:
    """The state of each generator after it was seeded and the module was built and run."""
    kept = random.getstate(), np.random.get_state()
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    try:
        module = subject.cls(subject.channels, **subject.hparams).eval()
        with torch.no_grad():
            module(subject.image(dtype=torch.float32))
        return {
            "torch's generator": torch.get_rng_state().numpy().tobytes(),
            "Python's random": repr(random.getstate()).encode(),
            "numpy's generator": np.random.get_state(legacy=False)["state"]["key"].tobytes(),
        }
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
