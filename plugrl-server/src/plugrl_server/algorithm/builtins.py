"""The table of built-in algorithms: names only, so that listing them imports nothing heavy."""

from plugrl_server.common.registry import BuiltIn

_HERE = "plugrl_server.algorithm"

BUILTIN_ALGORITHMS = (
    BuiltIn("ppo", f"{_HERE}.ppo.ppo_config", f"{_HERE}.ppo.ppo"),
    BuiltIn("sac", f"{_HERE}.sac.sac_config", f"{_HERE}.sac.sac"),
    BuiltIn("dppo", f"{_HERE}.dppo.dppo_config", f"{_HERE}.dppo.dppo"),
    BuiltIn("eval", f"{_HERE}.evaluation.evaluation_config", f"{_HERE}.evaluation.evaluation"),
    BuiltIn("dummy", f"{_HERE}.dummy.dummy_config", f"{_HERE}.dummy.dummy"),
    BuiltIn("fpo", f"{_HERE}.fpo.fpo_config", f"{_HERE}.fpo.fpo"),
)
