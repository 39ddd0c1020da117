"""Optimizing a model through one flat parameter per group."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn


class FlatOptimizer:
    """Adam or AdamW over a model's parameters, stepped as one flat float32 tensor per group.

    Float32 parameters become views of the flat tensor, and their gradients views of its gradient: a step costs the same
    few operations for any number of parameters, and elementwise mathematics does not change. Parameters of another
    dtype (bfloat16, float16) are trained through the flat tensor as their float32 master copy, which a step rounds
    into them: an update far below a bfloat16's resolution still adds up.

    Args:
        groups: `{"params": [...], "lr": ..., and other options of the optimizer}` each; the parameters of a group
            share dtype and device.
        algorithm: `torch.optim.Adam` or `AdamW`.

    Attributes:
        groups: The wrapped optimizer's groups: set `lr` there.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], algorithm: type[torch.optim.Adam] = torch.optim.Adam) -> None:
        self._groups: list[_FlatGroup] = []
        flat_groups = []
        for group in groups:
            options = {name: value for name, value in group.items() if name != "params"}
            flat = _FlatGroup(list(group["params"]))
            self._groups.append(flat)
            flat_groups.append({"params": [flat.master], **options})
        self._optimizer = algorithm(flat_groups, fused=all(flat.fusable for flat in self._groups))
        self.groups = self._optimizer.param_groups

    def zero_grad(self) -> None:
        """Set all gradients to zero; they stay views, so a backward pass adds into them."""
        for group in self._groups:
            group.gradient.zero_()

    def step(self, max_grad_norm: float | None = None) -> None:
        """Clip the gradients' common norm (where asked for) and update the parameters."""
        for group in self._groups:
            group.collect()
        if max_grad_norm is not None:
            self._clip(max_grad_norm)
        self._optimizer.step()
        for group in self._groups:
            group.spread()

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state and, where parameters are not float32, their master copies."""
        masters = [None if group.is_view else group.master.detach() for group in self._groups]
        return {"optimizer": self._optimizer.state_dict(), "masters": masters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, after the model's own parameters were loaded."""
        self._optimizer.load_state_dict(state["optimizer"])
        self.groups = self._optimizer.param_groups
        for group, master in zip(self._groups, state["masters"], strict=True):
            group.restore(master)

    @torch.no_grad()
    def _clip(self, max_grad_norm: float) -> None:
        gradients = [group.master_gradient for group in self._groups]
        norms = [gradient.norm() for gradient in gradients]
        norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
        scale = (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale)


class _FlatGroup:
    """The parameters of one group and their flat float32 tensor."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        first = parameters[0]
        if any(p.dtype != first.dtype or p.device != first.device for p in parameters):
            raise ValueError("The parameters of a group must share one dtype and one device.")
        self.is_view = first.dtype == torch.float32
        working = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.working = working
        self.gradient = torch.zeros_like(working)
        self.master = nn.Parameter(working if self.is_view else working.float())
        self.master_gradient = self.gradient if self.is_view else torch.zeros_like(self.master)
        self.master.grad = self.master_gradient
        offset = 0
        for parameter in parameters:
            part = slice(offset, offset + parameter.numel())
            parameter.data = working[part].view_as(parameter)
            parameter.grad = self.gradient[part].view_as(parameter)
            offset += parameter.numel()

    @property
    def fusable(self) -> bool:
        return self.master.device.type in ("cpu", "cuda")

    @torch.no_grad()
    def collect(self) -> None:
        """Bring the gradients to the master copy."""
        if not self.is_view:
            self.master_gradient.copy_(self.gradient)

    @torch.no_grad()
    def spread(self) -> None:
        """Bring the updated master copy to the parameters."""
        if not self.is_view:
            self.working.copy_(self.master)

    @torch.no_grad()
    def restore(self, master: torch.Tensor | None) -> None:
        """Take the master copy from a checkpoint, or from the parameters as they were loaded."""
        if not self.is_view:
            self.master.copy_(self.working if master is None else master)
