"""The host's time for a gradient is the one that is fitted to the blocks of an H200."""

import sys
from pathlib import Path

from ctxbench.plugins.predict.rates import GRADIENT_LAUNCHES, HOST_US

sys.path.insert(0, str(Path(__file__).parents[1]))

from host_launches import fitted, launch_bound


def test_the_gradient_of_a_parameter_takes_what_the_launch_bound_steps_show() -> None:
    operator, gradient = fitted(list(launch_bound("bfloat16")))
    assert round(gradient / operator) == GRADIENT_LAUNCHES
    assert round(operator) == HOST_US
