"""The PlugRL training server: policies, algorithms and the wire."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugrl_server.loading import LoadedPolicy

__all__ = ["load_policy"]


def load_policy(
    run_dir: str | Path, *, step: int | None = None, deterministic: bool = True, device: str = "auto"
) -> LoadedPolicy:
    """Load the policy of a run folder, to act without a server; see `plugrl_server.loading.load_policy`."""
    from plugrl_server import loading  # torch is only needed from here on

    return loading.load_policy(run_dir, step=step, deterministic=deterministic, device=device)
