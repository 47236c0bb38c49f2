"""Checks of side effects: a module prints nothing and leaves the global state of torch, Python and numpy unchanged."""

import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO

import numpy as np
import torch

from ctxbench.base.forks import Forks
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject, failed, listed, passed, step_input
from ctxbench.worker.global_settings import changed, settings
from ctxbench.worker.replaced import replaced


def quiet(subject: Subject) -> CheckResult:
    """Building the module, a training step and an eval forward pass print nothing."""
    with captured() as text:
        _use(subject)
    printed = text().strip()
    if printed:
        return failed(f"it prints {printed.splitlines()[0]!r}", "remove the line, or use the logging module")
    return passed("nothing on stdout or stderr")


def global_state(subject: Subject) -> CheckResult:
    """Threads, default dtype, gradient mode and flags are unchanged; no generator is seeded, no process forked."""
    torch.set_num_threads(2)  # from one, a change to one would not be seen
    before, forks = settings(), Forks.count
    _use(subject)
    if Forks.count > forks:
        return failed("it forks its process", "every copy goes on with what the caller does next: use a thread")
    if sentences := changed(before):
        return failed(sentences[0], "do not set it, or restore it after use")
    torch.set_num_threads(1)
    first, second = _generators_after(subject, 11), _generators_after(subject, 12)
    reseeded = [name for name in first if first[name] == second[name]]
    if reseeded:
        return failed(
            f"{reseeded[0]} is reseeded: its state afterwards is the same for two different seeds",
            "use the generator without seeding it, or a torch.Generator of your own",
        )
    return passed(f"{len(before)} settings unchanged, no generator reseeded")


def replaces_nothing(subject: Subject) -> CheckResult:
    """Loading and using the module replaces no function of Python, time or torch."""
    _use(subject)
    if found := replaced():
        return failed(
            f"it replaces {listed(found)}",
            "everything else in the process uses these names, the measurement too: call them, do not assign to them",
        )
    return passed("no function of Python, time or torch is replaced")


@contextmanager
def restored() -> Iterator[None]:
    """Restore the settings that a module is most likely to change, for the next checks and for the caller."""
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
    """Collect what Python prints, and what other code writes to file descriptors 1 and 2."""
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
    """Build the module, run one training step, if it has a gradient, and one eval forward pass."""
    module = subject.build()
    x = step_input(subject, module)
    y = module.train()(x)
    if y.requires_grad:  # the check of gradients tells of a module for inference alone
        y.sum().backward()
    with torch.no_grad():
        module.eval()(x)


def _generators_after(subject: Subject, seed: int) -> dict[str, bytes]:
    """The state of each generator after it was seeded and the module was built and run."""
    kept = random.getstate(), np.random.get_state()
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    try:
        module = subject.make(subject.channels, **subject.hparams).eval()
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
