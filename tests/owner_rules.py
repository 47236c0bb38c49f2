"""Checks that few files open, run and print: all that is read, imported, written and shown passes through them; and
that no two files give one name to two types.

`python tests/owner_rules.py`. A new owner needs a line in OWNERS, with the reason.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHIPPED = ("ctxbench", "science", "report", "modules", "networks", "suites")
READ = ("open", "read_text", "read_bytes", "write_text", "write_bytes")
CHANGE = (
    *("mkdir", "makedirs", "rmtree", "rmdir", "unlink", "rename", "renames", "symlink", "symlink_to", "hardlink_to"),
    *("copyfile", "copy2", "copytree", "move", "truncate", "fdopen", "FileIO", "ZipFile", "to_csv", "to_json"),
)
RUN = (
    "import_module",
    "__import__",
    "spec_from_file_location",
    "exec_module",
    "exec",
    "eval",
    "run_path",
    "run_module",
)
LEAVE = ("mkdtemp", "NamedTemporaryFile", "TemporaryDirectory")
SHOW = ("print",)
# Names that methods of other things have, too.
METHODS = ("print", "eval", "exec")
GIT = "ctxbench/base/git.py"
ADVICE = "Use ctxbench.base.disk to read and write, .git for git, .terminal to print; owners: tests/owner_rules.py"
# What a file may call that no other may.
OWNERS: dict[str, tuple[tuple[str, ...], str]] = {
    "ctxbench/base/disk.py": ((*READ, *CHANGE), "the one reader and writer"),
    "ctxbench/base/temporary.py": ((*LEAVE, *CHANGE), "the one maker of temporary folders, which removes what is left"),
    "ctxbench/base/terminal.py": (SHOW, "the one that prints"),
    "ctxbench/__init__.py": (RUN, "names of ctxbench itself"),
    "ctxbench/__main__.py": (SHOW, "an installation that lacks a package can import nothing else"),
    "ctxbench/cli/__init__.py": (SHOW, "the version"),
    "ctxbench/cli/commands/env.py": (SHOW, "JSON, which escapes"),
    "ctxbench/cli/printing.py": (SHOW, "what a safe console has drawn"),
    "ctxbench/cli/streams.py": (("fdopen",), "the standard streams"),
    "ctxbench/engine/cache.py": (
        ("read_text", "rmtree", "unlink"),
        "the record of an installed package; its own folder",
    ),
    "ctxbench/engine/client.py": (("truncate",), "its own file without a name"),
    "ctxbench/engine/run.py": (("unlink",), "its own lock"),
    "ctxbench/plugins/trees/trees.py": (("unlink",), "the index that git wrote for it"),
    "ctxbench/plugins/runtimes/exported.py": (("rename",), "files that it has just written"),
    "ctxbench/worker/one_task.py": (("fdopen",), "the standard streams"),
    "ctxbench/plugin.py": (RUN, "files of plugins, which are installed"),
    "ctxbench/model/metrics.py": (RUN, "metrics of the core"),
    "ctxbench/executions/__init__.py": (RUN, "executions of the core"),
    "science/ctxbench_science/claims/findings.py": (RUN, "claims of ctxbench's own suites"),
    "ctxbench/registry/load.py": (RUN, "the module that a person measures, in a child"),
    "ctxbench/worker/child.py": ((*RUN, *SHOW), "torch, before anything of a person's; the child's own output"),
    "ctxbench/worker/tasks.py": (("import_module",), "files of ctxbench that each child needs, before the fork"),
    "ctxbench/plugins/macs/preload.py": (("import_module",), "its own file that counts a step, before the fork"),
    "ctxbench/plugins/memory/preload.py": (("import_module",), "its own files, before the fork"),
    "ctxbench/worker/tree.py": (RUN, "ctxbench's modules of another source tree, in a child"),
    "ctxbench/meta/without_compiler.py": (RUN, "parts of torch"),
}


def foreign_calls(source: str, file: str) -> Iterator[str]:
    """A line for each call that `file` may not make."""
    own, _ = OWNERS.get(file, ((), ""))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List) and [getattr(each, "value", "") for each in node.elts[:1]] == ["git"]:
            if file != GIT:
                yield f"{file}:{node.lineno} calls git"
            continue
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name):
            name, is_other = called.id, False
        elif isinstance(called, ast.Attribute):
            name, of = called.attr, getattr(called.value, "id", "")
            # Of `disk`; a method of a class, of `os` or of `self`; the mode of a module.
            is_other = (
                of == "disk" or (name == "open" and (of in ("os", "self") or of[:1].isupper())) or name in METHODS
            )
        else:
            continue
        if name in (*READ, *CHANGE, *RUN, *LEAVE, *SHOW) and name not in own and not is_other:
            yield f"{file}:{node.lineno} calls {name}"


def types(source: str) -> Iterator[tuple[str, int]]:
    """The public types of a file, classes and aliases, with their lines."""
    for node in ast.parse(source).body:
        named = [each.id for each in node.targets if isinstance(each, ast.Name)] if isinstance(node, ast.Assign) else []
        for name in [node.name] if isinstance(node, ast.ClassDef) else named:
            if name[0].isupper() and not name.isupper():
                yield name, node.lineno


def shared_types(sources: Mapping[str, str]) -> Iterator[str]:
    """A line for each type that has the name of one in an earlier file."""
    first: dict[str, str] = {}
    for file, source in sources.items():
        for name, line in types(source):
            if (other := first.setdefault(name, file)) != file:
                yield f"{file}:{line} names a type {name}, as {other} does: give one of them another name"


def main() -> int:
    """Print each call and name that may not be; 1 if there is one."""
    files = [file for each in SHIPPED for file in sorted((ROOT / each).rglob("*.py"))]
    found = [
        line for file in files for line in foreign_calls(file.read_text("utf-8"), file.relative_to(ROOT).as_posix())
    ]
    named = [file for file in files if file.relative_to(ROOT).parts[0] in ("ctxbench", "science", "report")]
    twice = [*shared_types({file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in named})]
    found += [f"{file} is an owner that is not there" for file in OWNERS if not (ROOT / file).is_file()]
    if found or twice:
        print(*twice, *found, *[ADVICE] * bool(found), sep="\n")
    return bool(found or twice)


if __name__ == "__main__":
    sys.exit(main())
