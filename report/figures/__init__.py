"""The figures of a report, one kind a file."""

import contextlib
import os

# When it is imported, matplotlib obeys a file `matplotlibrc` of the working folder, which may be a stranger's.
with contextlib.chdir(os.sep):
    import matplotlib  # noqa: F401  # for the files of this folder
