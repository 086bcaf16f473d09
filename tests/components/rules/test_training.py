"""Rules about training: what just passes, and what just fails."""

import pytest

from tests.components.rules.verdicts import refused


@pytest.mark.parametrize(("nodes", "trains"), [(2, True), (3, False), (8, True)])
def test_the_recipe_is_checked_on_the_pool_s_nodes(nodes: int, trains: bool) -> None:
    assert (refused(gpu_pool__node_count=nodes) == set()) is trains
