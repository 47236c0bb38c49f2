"""The installed cuDNN, where there is one, beside what version 9.19 answered for an H200."""

import pytest
from test_cudnn_choice import known

from ctxbench.plugins.cudnn.ask import FOLDER_ENV, ask

# One in so many convolutions is asked about.
EVERY = 29


@pytest.mark.extra("cudnn")
def test_the_installed_library_answers_as_it_did_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_ENV)
    some = {asked: choice for _, asked, choice in known()[::EVERY]}
    found, *_ = ask("h200", list(some))
    if not found.version.startswith(("9.19.", "9.20.")):
        pytest.skip(f"cuDNN {found.version} may answer otherwise")
    assert found.choices == some
