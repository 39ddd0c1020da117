"""How one process is doing, and all of them."""

import dataclasses

from plugrl_env_client.reporting.processes import ProcessStatus, total
from plugrl_env_client.reporting.tally import nothing_yet


def test_the_envs_of_a_process():
    assert ProcessStatus(0, 4, "", nothing_yet(1)).envs == "4"
    assert ProcessStatus(0, 4, "", nothing_yet(3)).envs == "4-6"


def test_all_of_them_together():
    parts = [ProcessStatus(i, i, "", dataclasses.replace(nothing_yet(2), steps=i)) for i in (1, 2)]
    assert total(parts).steps == 3
    assert len(total(parts).env_steps) == 4
