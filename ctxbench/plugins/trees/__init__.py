"""The files of one commit, and the cases that a suite has in a source tree: what `check` and `history` share."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="takes modules from the files of any commit of a repository",
    questions={"cases": "child:list_cases"},
)
