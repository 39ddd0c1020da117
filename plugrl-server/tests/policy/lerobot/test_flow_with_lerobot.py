"""The real thing: a tiny SmolVLA of lerobot, randomly initialised, with a tiny language model saved beside it.

Skipped where lerobot is not installed, as in the workspace; `.ci/lerobot` runs it in an environment of its own.
"""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.algorithm.evaluation.evaluation import Evaluation
from plugrl_server.algorithm.evaluation.evaluation_config import EvaluationConfig
from plugrl_server.algorithm.feedback_rows import NO_NODE, FeedbackRows
from plugrl_server.algorithm.fpo.fpo import FPO
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.lerobot_flow_policy import LeRobotFlowPolicy
from plugrl_server.policy.lerobot.lerobot_flow_policy_config import LeRobotFlowPolicyConfig
from plugrl_server.policy.lerobot.lerobot_policy import LeRobotPolicy
from plugrl_server.policy.lerobot.lerobot_policy_config import LeRobotPolicyConfig

pytest.importorskip("lerobot", reason="lerobot is not installed: .ci/lerobot runs this file where it is")

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

SPACE = BoxSpace((2,), np.dtype("f4"), np.full(2, -10, "f4"), np.full(2, 10, "f4"))
SHAPE = (40, 48, 3)
SPECIAL = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "end_of_utterance_token": "<end_of_utterance>",
    "global_image_token": "<global-img>",
}
OBS = {
    "images": {"top": np.random.default_rng(0).integers(0, 256, (2, *SHAPE), np.uint8)},
    "states": {"arm": np.array([[0.1, 0.2], [0.5, 0.6]]), "base": np.array([[0.3], [0.7]])},
    "text": np.array(["push it", ""]),
}


def save_language_model(folder):
    """Saves configuration and tokenizer of a SmolVLM of two layers: lerobot reads no weights from there."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor
    from transformers import SmolVLMVideoProcessor as VideoProcessor

    words = ["<unk>", "<pad>", *SPECIAL.values(), "push", "it"]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", extra_special_tokens=SPECIAL
    )
    SmolVLMProcessor(SmolVLMImageProcessor(), wrapped, VideoProcessor()).save_pretrained(folder)
    heads = {"num_attention_heads": 2, "num_hidden_layers": 2}
    text = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 16, "num_key_value_heads": 1, "head_dim": 8}
    vision = {"hidden_size": 8, "intermediate_size": 8, "image_size": 32, "patch_size": 16}
    SmolVLMConfig(
        text_config={**text, **heads, "vocab_size": len(words), "pad_token_id": 1},
        vision_config={**vision, **heads},
        scale_factor=2,
        image_token_id=words.index("<image>"),
        pad_token_id=1,
    ).save_pretrained(folder)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language_model")
    save_language_model(folder)
    return folder


def saved(folder, backbone, **changes):
    """Saves a tiny SmolVLA and its processors, as lerobot's training does."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import make_pre_post_processors
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy

    torch.manual_seed(0)
    images = {"observation.images.top": PolicyFeature(FeatureType.VISUAL, (SHAPE[2], *SHAPE[:2]))}
    small = {"chunk_size": 6, "n_action_steps": 4, "max_state_dim": 5, "max_action_dim": 3, "num_steps": 5}
    config = SmolVLAConfig(
        **{
            **small,
            "vlm_model_name": str(backbone),
            "resize_imgs_with_padding": (32, 32),
            "expert_width_multiplier": 0.5,
            "device": "cpu",
            "input_features": {"observation.state": PolicyFeature(FeatureType.STATE, (3,)), **images},
            "output_features": {"action": PolicyFeature(FeatureType.ACTION, (2,))},
            **changes,
        }
    )
    policy = SmolVLAPolicy(config).eval()
    stats = {
        name: {"mean": torch.full((width,), 0.5), "std": torch.full((width,), 2.0)}
        for name, width in (("observation.state", 3), ("action", 2))
    }
    pre, post = make_pre_post_processors(config, dataset_stats=stats)
    for part in (policy, pre, post):
        part.save_pretrained(folder)
    return policy, pre, post


def fine_tunable(folder, **changes):
    known = {"state_keys": ("arm", "base"), "obs_dim": 3, "image_shapes": {"top": SHAPE}, "action_dim": 2}
    options = {
        "policy_path": folder,
        "device": "cpu",
        "critic_hidden_sizes": (8,),
        "task": "push it",
        "action_space": SPACE,
    }
    config = LeRobotFlowPolicyConfig(**{**known, **options, **changes})
    config.check()
    return LeRobotFlowPolicy(config)


def batch_of(obs, **more):
    return {
        "observation.state": torch.tensor(np.hstack([*obs["states"].values()]), dtype=torch.float32),
        "observation.images.top": torch.from_numpy(obs["images"]["top"]).permute(0, 3, 1, 2).float() / 255,
        "task": ["push it"] * 2,
        **more,
    }


def told(algorithm, obs, count):
    """Feeds transitions whose reward is the mean action."""
    flags = np.zeros(2, bool)
    for _ in range(count):
        actions, runtime_state = algorithm.infer(obs)
        algorithm.feedback_rows(
            FeedbackRows(
                obs, runtime_state, algorithm.derive_train_state(runtime_state), flags, flags, obs,
                actions.mean((1, 2)).astype("f4"), [{}, {}], ~flags, flags, [NO_NODE] * 2,
            )
        )  # fmt: skip


# The flow is lerobot's -------------------------------------------------------------------------------------------


def test_the_chain_is_lerobot_s_sampling(tmp_path, backbone):
    theirs, pre, post = saved(tmp_path, backbone)
    policy = fine_tunable(tmp_path)
    noise = torch.randn(2, 6, 3)
    sampled = theirs.predict_action_chunk(pre(batch_of(OBS)), noise=noise)
    with torch.no_grad():
        features = policy.features(policy.observe(OBS))
        chain = policy(features, noise, torch.zeros(5, 2, 6, 3), range(5))
    torch.testing.assert_close(chain[-1][..., :2], sampled, atol=1e-5, rtol=1e-4)
    actions = policy.to_actions(chain[-1].numpy())
    expected = torch.stack([post(sampled[:, step]) for step in range(4)], 1).clamp(-10, 10)
    np.testing.assert_allclose(actions, expected.numpy(), atol=1e-5, rtol=1e-4)


def test_one_step_is_lerobot_s_only_step(tmp_path, backbone):
    theirs, pre, _ = saved(tmp_path, backbone, num_steps=1)
    policy = fine_tunable(tmp_path)
    noise = torch.randn(2, 6, 3)
    with torch.no_grad():
        condition = policy.condition(policy.features(policy.observe(OBS)))
        mean, std = policy.denoise_step(condition, noise, torch.zeros(2))
    expected = theirs.predict_action_chunk(pre(batch_of(OBS)), noise=noise)
    torch.testing.assert_close(mean[..., :2], expected, atol=1e-5, rtol=1e-4)
    assert (policy.num_steps, float(std)) == (1, 0)


def test_the_flow_matching_loss_is_lerobot_s_training_loss(tmp_path, backbone):
    theirs, pre, _ = saved(tmp_path, backbone)
    policy = fine_tunable(tmp_path)
    noise, t = torch.randn(2, 6, 3), torch.tensor([0.2, 0.9])
    inputs = pre(batch_of(OBS, action=torch.randn(2, 6, 2)))
    loss, _ = theirs.forward(dict(inputs), noise=noise, time=t)
    action = torch.nn.functional.pad(inputs["action"], (0, 1))
    with torch.no_grad():
        condition = policy.condition(policy.features(policy.observe(OBS)))
        velocity = policy.velocity(condition, t[:, None, None] * noise + (1 - t[:, None, None]) * action, t)
    torch.testing.assert_close((velocity - (noise - action)).square().mean(), loss.detach(), atol=1e-5, rtol=1e-4)


def test_the_task_and_the_image_matter(tmp_path, backbone):
    saved(tmp_path, backbone)
    dark = {**OBS, "images": {"top": np.zeros_like(OBS["images"]["top"])}}
    policy, other = fine_tunable(tmp_path), fine_tunable(tmp_path, task="it it it")
    for each in (policy, other):
        each.deterministic = True
    first = policy.get_action_and_runtime_state(OBS)[0]
    assert first.shape == (2, 4, 2)
    assert np.array_equal(first, policy.get_action_and_runtime_state(OBS)[0])
    assert not np.array_equal(first, policy.get_action_and_runtime_state(dark)[0])
    assert not np.array_equal(first, other.get_action_and_runtime_state(OBS)[0])
    bright, unlit = (policy.value(policy.features(policy.observe(obs))) for obs in (OBS, dark))
    assert not torch.equal(bright, unlit)


# Learning and evaluating -----------------------------------------------------------------------------------------


def test_fpo_begins_at_ratio_1_and_changes_what_lerobot_trains(tmp_path, backbone):
    saved(tmp_path, backbone)
    policy = fine_tunable(tmp_path)
    algorithm = FPO(FPOConfig(buffer_size=16, batch_size=16, update_epochs=2, num_samples=3, global_steps=64), policy)
    algorithm.init_optimizers()
    before = {name: value.detach().clone() for name, value in policy.model.named_parameters()}
    steps, taken = [], algorithm.policy_loss

    def watched(*arguments):
        steps.append(taken(*arguments))
        return steps[-1]

    algorithm.policy_loss = watched
    told(algorithm, OBS, 8)
    assert algorithm.should_learn()
    _, metrics = algorithm.learn()
    algorithm.post_learn()
    assert all(np.isfinite(value) for value in metrics.values())
    first, second = (log_ratio for _, _, log_ratio in steps)
    assert first.abs().max() < 1e-5 < second.abs().max()
    parameters = dict(policy.model.named_parameters())
    moved = {name for name, value in parameters.items() if not torch.equal(value, before[name])}
    assert moved == {name for name, value in parameters.items() if value.requires_grad}
    assert not any(".vlm." in name for name in moved)
    again = fine_tunable(tmp_path)
    again.load_state_dict(policy.state_dict())
    policy.deterministic = again.deterministic = True
    assert np.array_equal(policy.get_action_and_runtime_state(OBS)[0], again.get_action_and_runtime_state(OBS)[0])


def test_eval_acts_by_it_without_a_checkpoint_of_ours(tmp_path, backbone):
    saved(tmp_path, backbone)
    algorithm = Evaluation(EvaluationConfig(num_episodes=4), fine_tunable(tmp_path))
    first, _ = algorithm.infer(OBS)
    assert np.array_equal(first, algorithm.infer(OBS)[0])
    assert first.shape == (2, 4, 2)


def test_lerobot_policy_acts_by_it_too(tmp_path, backbone):
    theirs, pre, post = saved(tmp_path, backbone)
    acting = LeRobotPolicy(LeRobotPolicyConfig(policy_path=tmp_path, device="cpu", task="push it"))
    torch.manual_seed(1)
    actions, _ = acting.get_action_and_runtime_state(OBS)
    torch.manual_seed(1)
    chunk = theirs.predict_action_chunk(pre(batch_of(OBS)))
    expected = torch.stack([post(chunk[:, step]) for step in range(4)], 1)
    np.testing.assert_allclose(actions, expected.numpy(), atol=1e-5, rtol=1e-4)


def test_lerobot_policy_without_noise_is_the_flow_without_noise(tmp_path, backbone):
    saved(tmp_path, backbone)
    acting = LeRobotPolicy(LeRobotPolicyConfig(policy_path=tmp_path, device="cpu", task="push it"))
    flow = fine_tunable(tmp_path)
    obs = {**OBS, "text": np.array(["", ""])}
    for each in (acting, flow):
        each.adopt_action_space(SPACE)
        each.deterministic = True
    actions, _ = acting.get_action_and_runtime_state(obs)
    np.testing.assert_allclose(actions, flow.get_action_and_runtime_state(obs)[0], atol=1e-5, rtol=1e-4)
    acting.deterministic = False
    assert not np.allclose(actions, acting.get_action_and_runtime_state(obs)[0], atol=1e-2)


def test_a_language_model_that_is_elsewhere_is_named_or_asked_for(tmp_path, backbone):
    from lerobot.configs.policies import PreTrainedConfig

    saved(tmp_path, backbone)
    config = PreTrainedConfig.from_pretrained(tmp_path)
    config.vlm_model_name, config.load_vlm_weights = "nobody/has-this", True
    config.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"nobody/has-this are not on this machine.*--policy\.backbone-path"):
        fine_tunable(tmp_path)
    policy = fine_tunable(tmp_path, backbone_path=backbone)
    assert policy.get_action_and_runtime_state(OBS)[0].shape == (2, 4, 2)


def test_what_does_not_fit_is_refused_with_both_sides(tmp_path, backbone):
    saved(tmp_path, backbone)
    for change, words in (
        ({"obs_dim": 4}, "obs_dim 4, this policy reads 3"),
        ({"image_shapes": {"top": (64, 64, 3)}}, r"images .*64.*, this policy reads .*\(40, 48, 3\)"),
        ({"action_horizon": 7}, "--policy.action-horizon 7: this policy's horizon is 6"),
    ):
        with pytest.raises(ConfigError, match=words):
            fine_tunable(tmp_path, **change)
