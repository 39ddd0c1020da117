"""What one test file registers is unknown to the next."""

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
