"""On a system without fork, a cluster is refused."""

import pytest

from ctxbench.base.errors import UsageError
from ctxbench_science.cluster.ray_slots import connect


def test_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxbench.base.clocks.FORKS", False)
    with pytest.raises(UsageError, match="cluster-run measures on Linux only; run measures the same suite"):
        connect("local").__enter__()
