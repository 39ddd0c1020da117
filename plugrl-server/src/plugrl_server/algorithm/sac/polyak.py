"""Target networks that follow others slowly."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class PolyakTarget:
    """Parameters that follow a flat float32 tensor: target <- (1 - tau) target + tau source.

    They become views of one flat tensor, so that following is one operation. Where they are not float32 they follow
    through a float32 master copy, without which a step of tau would be rounded away.

    Args:
        parameters: The targets, of one dtype; float32 ones are moved into the flat tensor.
        source: What they follow, their numbers end to end (`FlatAdam.weights`), f4[total]; they begin equal to it.
    """

    @torch.no_grad()
    def __init__(self, parameters: Iterable[nn.Parameter], source: torch.Tensor) -> None:
        targets = list(parameters)
        self._source = source
        self._working = torch.cat([target.detach().reshape(-1) for target in targets])
        if self._working.shape != source.shape:
            raise ValueError(f"{self._working.numel()} numbers cannot follow {source.numel()}.")
        self._has_copy = self._working.dtype != torch.float32
        self.master = self._working.float() if self._has_copy else self._working
        start = 0
        for target in targets:
            target.data = self._working[start : start + target.numel()].view_as(target)
            start += target.numel()
        self.follow(1.0)

    @torch.no_grad()
    def follow(self, tau: float) -> None:
        """Move the targets this part of the way to their source."""
        self.master.lerp_(self._source, tau)
        if self._has_copy:
            self._working.copy_(self.master)

    def state_dict(self) -> dict[str, Any]:
        """Return the master copy, or None where the parameters are float32 themselves."""
        return {"master": self.master if self._has_copy else None}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the master copy, after the parameters themselves were loaded."""
        if self._has_copy:
            self.master.copy_(self._working if state["master"] is None else state["master"])
