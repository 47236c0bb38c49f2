"""A file that opens, runs or prints by itself is found, with its line."""

import pytest
from owner_rules import GIT, OWNERS, foreign_calls, main, shared_types

FILE = "ctxbench/plugins/history/table.py"


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("open(path)", "open"),
        ("path.open()", "open"),
        ("Path('x').read_text()", "read_text"),
        ("importlib.import_module(name)", "import_module"),
        ("exec(code)", "exec"),
        ("tempfile.mkdtemp()", "mkdtemp"),
        ("path.mkdir()", "mkdir"),
        ("shutil.rmtree(path)", "rmtree"),
        ("os.fdopen(number)", "fdopen"),
        ("print(1)", "print"),
    ],
)
def test_a_call_that_is_not_a_file_s_own_is_found(call: str, name: str) -> None:
    assert list(foreign_calls(f"import x\n{call}\n", FILE)) == [f"{FILE}:2 calls {name}"]
    owner = next(file for file, (own, _) in OWNERS.items() if name in own)
    assert list(foreign_calls(call, owner)) == []


@pytest.mark.parametrize("call", ["disk.read_text(path)", "RunFolder.open(path)", "os.open(a, b)", "model.eval()"])
def test_what_passes_through_an_owner_is_not(call: str) -> None:
    assert list(foreign_calls(call, FILE)) == []


def test_git_is_run_in_one_place() -> None:
    call = 'subprocess.run(["git", "status"])'
    assert [*foreign_calls(call, FILE)] == [f"{FILE}:1 calls git"]
    assert [*foreign_calls(call, GIT)] == []


def test_two_types_of_one_name_are_found() -> None:
    first = "Row = tuple[int, str]\nROWS = 3\nclass _Own: ...\n"
    second = "ROWS = 4\nclass _Own: ...\nclass Row: ...\nclass Rows: ...\n"
    assert [*shared_types({"a.py": first, "b.py": second})] == [
        "b.py:3 names a type Row, as a.py does: give one of them another name"
    ]


@pytest.mark.slow
def test_no_file_of_today_does() -> None:
    assert main() == 0
