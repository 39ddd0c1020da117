"""The flags of quicker networks; free of torch."""

import dataclasses
from typing import Literal


@dataclasses.dataclass
class AccelerationConfig:
    """How a policy's networks run while they learn. A policy's configuration inherits it beside its base."""

    autocast: Literal["off", "bf16"] = "off"
    """Run the networks' matrix products in bfloat16 while learning; the weights stay as they are."""
    compile: bool = False
    """Compile the networks' forward and backward pass for learning (torch.compile); worth it for large networks."""
