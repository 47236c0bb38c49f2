"""The pytest fixture `ctxbench_case`."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(about="brings the pytest fixture `ctxbench_case`")
