"""The figures of a report, one kind a file."""

import contextlib
import os
from unittest.mock import patch

# When it is imported, matplotlib obeys a file `matplotlibrc` of the working folder, which may be a stranger's.
# It also stops at a backend that is not installed, which a notebook names for all that it starts.
with contextlib.chdir(os.sep), patch.dict(os.environ, MPLBACKEND="agg"):
    import matplotlib  # noqa: F401  # for the files of this folder
