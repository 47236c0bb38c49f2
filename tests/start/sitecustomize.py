"""Python runs this first in each process that a test starts: the machine of the tests takes the real one's place, its
processor is capped, another system takes the place of Linux, and children of a shared server work where their test
does.
"""

import contextlib
import os
from pathlib import Path

if named := os.environ.pop("CTXBENCH_TEST_FOLDER", ""):

    def _enter() -> None:
        with contextlib.suppress(OSError):  # the folder of a test that has ended
            os.chdir(Path(named).read_text(encoding="utf-8"))

    os.register_at_fork(after_in_child=_enter)
if "CTXBENCH_TEST_CPU" in os.environ:
    import processors

    processors.cap()
if "CTXBENCH_TEST_SYSTEM" in os.environ:
    import other_systems

    other_systems.hide()
if "CTXBENCH_TEST_MACHINE" in os.environ:
    with contextlib.suppress(ImportError):  # an interpreter without ctxbench
        import machines

        machines.take_place()
