"""The mistake that the custom-algorithm guide warns of: the configuration is imported, the class is not."""

import dataclasses

from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig
from plugrl_server.algorithm.registration import register_algo_config


@register_algo_config("half-algo")
@dataclasses.dataclass
class HalfAlgoConfig(BaseAlgoConfig):
    """Half of an algorithm."""
