"""What one test file registers is unknown to the next; what tests of all algorithms need."""

import pytest
from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.policy.registration import POLICIES


@pytest.fixture(autouse=True, scope="module")
def registries_forget():
    """Forget users' classes and variants that were not there before; built-ins, loaded for good, stay."""
    before = [
        {uid: (e.user_class, dict(e.user_variants)) for uid, e in r._entries.items()} for r in (POLICIES, ALGORITHMS)
    ]
    yield
    for registry, known in zip((POLICIES, ALGORITHMS), before, strict=True):
        for uid, entry in registry._entries.items():
            entry.user_class, entry.user_variants = known.get(uid, (None, {}))


@pytest.fixture
def device_waits(monkeypatch):
    """A growing list of the calls by which a program waits for a tensor's numbers (rule 6)."""
    import torch

    waits = []
    for name in ("item", "__float__", "__bool__", "tolist", "cpu"):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *a, o=original, n=name: (waits.append(n), o(*a))[1])
    return waits
