"""`ctxbench predict`: a module's time on a GPU that is not here."""

from collections.abc import Mapping
from typing import Any

from ctxbench.cli.options import OF_MODULE
from ctxbench.cli.printing import render
from ctxbench.cli.signature import command_of
from ctxbench.plugins.predict import function


@command_of(function.predict_time, hparams=OF_MODULE)
def predict(asked: Mapping[str, Any]) -> None:
    """Predict a module's time on a GPU that is not here; print by operator what bounds it. Nothing is measured."""
    for part in function.predict_time(**asked).parts:
        render(part)
