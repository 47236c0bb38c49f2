"""Imports the modules that are named; prints which driver was asked meanwhile, and how many threads there are more."""

import importlib
import os
import sys
from unittest.mock import patch

import torch

asked: list[str] = []
threads = len(os.listdir("/proc/self/task"))
with (
    patch.object(torch.cuda, "_lazy_init", lambda: asked.append("torch.cuda")),
    patch.object(torch.autograd.Variable, "_execution_engine", None),  # a backward pass fails
):
    for name in sys.argv[1:]:
        importlib.import_module(name)
print(*asked, len(os.listdir("/proc/self/task")) - threads)
