"""The table of built-in policies: names only, so that listing them imports nothing heavy."""

from plugrl_server.common.registry import BuiltIn

_HERE = "plugrl_server.policy"

BUILTIN_POLICIES = (
    BuiltIn("gaussian-policy", f"{_HERE}.gaussian.gaussian_policy_config", f"{_HERE}.gaussian.gaussian_policy"),
    BuiltIn(
        "categorical-policy",
        f"{_HERE}.categorical.categorical_policy_config",
        f"{_HERE}.categorical.categorical_policy",
    ),
    BuiltIn(
        "dppo-gaussian-policy",
        f"{_HERE}.dppo_gaussian.dppo_gaussian_policy_config",
        f"{_HERE}.dppo_gaussian.dppo_gaussian_policy",
    ),
    BuiltIn("sac-policy", f"{_HERE}.sac.sac_policy_config", f"{_HERE}.sac.sac_policy"),
    BuiltIn("dppo-policy", f"{_HERE}.dppo.dppo_policy_config", f"{_HERE}.dppo.dppo_policy"),
    BuiltIn(
        "lerobot-policy",
        f"{_HERE}.lerobot.lerobot_policy_config",
        f"{_HERE}.lerobot.lerobot_policy",
        needs=("lerobot",),
    ),
    BuiltIn(
        "lerobot-diffusion-policy",
        f"{_HERE}.lerobot.lerobot_diffusion_policy_config",
        f"{_HERE}.lerobot.lerobot_diffusion_policy",
        needs=("lerobot",),
    ),
    BuiltIn(
        "lerobot-flow-policy",
        f"{_HERE}.lerobot.lerobot_flow_policy_config",
        f"{_HERE}.lerobot.lerobot_flow_policy",
        needs=("lerobot", "transformers", "num2words"),
        requirement="lerobot[smolvla]",
    ),
    BuiltIn("openpi-policy", f"{_HERE}.openpi.openpi_policy_config", f"{_HERE}.openpi.openpi_policy"),
    BuiltIn("dummy-policy", f"{_HERE}.dummy.dummy_policy_config", f"{_HERE}.dummy.dummy_policy"),
    BuiltIn("fpo-policy", f"{_HERE}.fpo.fpo_policy_config", f"{_HERE}.fpo.fpo_policy"),
)
