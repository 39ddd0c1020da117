"""The base of algorithms that learn data-parallel over several processes."""

from typing import Any, ClassVar

from plugrl_server.algorithm.base_algorithm import BaseAlgorithm


class DDPAlgorithm(BaseAlgorithm):
    """An algorithm that tells how its learn step is split over processes, by the hooks in `HOOKS`.

    An algorithm without these hooks derives from `BaseAlgorithm` instead.
    """

    HOOKS: ClassVar[dict[str, str]] = {
        "distributed_modules": "distributed_modules() -> dict[str, torch.nn.Module]: the modules kept equal everywhere",
        "shard_batch": "shard_batch(rank, world_size) -> tree: the part of the stored frames one process learns from",
        "learn_shard": "learn_shard(shard) -> dict: one learn step on a shard, with gradients averaged",
    }
    """Hook -> signature and purpose."""

    def __init__(self, config: Any, policy: Any) -> None:
        missing = [signature for name, signature in self.HOOKS.items() if not callable(getattr(self, name, None))]
        if missing:
            raise TypeError(
                f"{type(self).__name__} derives from DDPAlgorithm but lacks its distributed hooks:\n  "
                + "\n  ".join(missing)
                + "\nWrite them, or derive from BaseAlgorithm, which needs none."
            )
        super().__init__(config=config, policy=policy)
