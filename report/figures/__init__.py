"""The figures of a report, one kind a file."""

import contextlib
import os

# When it is imported, matplotlib obeys a file `matplotlibrc` of the working folder, which may be a stranger's.
# It also stops at a backend that is not installed, which a notebook names for all that it starts.
_named = os.environ.get("MPLBACKEND")
os.environ["MPLBACKEND"] = "agg"
try:
    with contextlib.chdir(os.sep):
        import matplotlib  # noqa: F401  # for the files of this folder
finally:
    os.environ.pop("MPLBACKEND")
    if _named is not None:
        os.environ["MPLBACKEND"] = _named
