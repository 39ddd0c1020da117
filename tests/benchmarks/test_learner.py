import importlib.util
import json

import learner
import pytest
import torch
from plugrl_server.learning.rng import seed_everything

TINY = learner.Size(frames=256, update_epochs=2, rounds=1, gae_steps=16, gae_envs=4, sac_updates=3, sac_frames=300)


class NoSteps:
    def begin(self, description):
        pass


@pytest.mark.parametrize("optimizer", learner.OPTIMIZERS)
def test_bare_loop_is_our_mathematics(optimizer):
    settings = learner.settings_of(TINY)
    seed_everything(1)
    ours = learner.Ours(settings)
    bare = learner.make_bare(ours, settings, optimizer)
    start = torch.nn.utils.parameters_to_vector(ours.algorithm.policy.critic.parameters())
    for turn in range(2):  # the second learn step sees normalised observations and rewards carried over
        rollout = learner.make_rollout(settings, seed=turn)
        ours.store(rollout)
        ours.learn()
        rate = settings.learning_rate * (1 - turn * settings.buffer_size / learner.GLOBAL_STEPS)
        bare.learn(rollout, rate)
    for part in ("actor", "critic"):
        theirs = getattr(bare.net, part).state_dict()
        for name, weights in getattr(ours.algorithm.policy, part).state_dict().items():
            torch.testing.assert_close(theirs[name], weights, atol=2e-5, rtol=0)
    torch.testing.assert_close(bare.net.log_std, ours.algorithm.policy.log_std, atol=2e-5, rtol=0)
    moved = torch.nn.utils.parameters_to_vector(ours.algorithm.policy.critic.parameters()) - start
    assert moved.abs().max() > 1e-3


def test_report_holds_the_headlines_and_their_targets():
    found = {**learner.ppo_results(learner.measure_ppo(TINY, NoSteps())), **learner.gae_results([0.002, 0.001, 0.004])}
    assert found["ppo_update_over_bare_loop"] == max(found["ppo"]["ratio_to"].values()) > 0
    assert {name: len(seconds) for name, seconds in found["ppo"]["seconds"].items()} == dict.fromkeys(
        ("ours", *learner.OPTIMIZERS), 1
    )
    assert found["gae_ms"] == 2
    assert found["gae_least_ms"] == 1
    assert learner.verdicts({"gae_ms": 5.1})["gae_ms"] == {"at_most": 5.0, "met": False}


def test_sac_is_told_in_updates_per_second():
    found = learner.sac_results({"ours": [2.0, 1.0, 4.0], "stable_baselines3": [3.0, 2.0, 4.0]}, updates=10)
    assert found["sac_updates_over_sb3"] == 1.5
    assert found["sac"]["most_updates_per_second"] == {"ours": 10.0, "stable_baselines3": 5.0}
    assert learner.verdicts({"sac_updates_over_sb3": 0.9})["sac_updates_over_sb3"]["met"] is False


def test_gae_is_measured_at_the_size_that_was_asked_for():
    assert len(learner.measure_gae(TINY, NoSteps())) == 10


@pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="Stable-Baselines3 is in the dependency group bench"
)
def test_script_writes_its_report(tmp_path, monkeypatch):
    monkeypatch.setattr(learner, "QUICK", TINY)
    threads = torch.get_num_threads()
    assert learner.main(["--quick", "--json", str(tmp_path / "learner.json")]) == 0
    torch.set_num_threads(threads)
    content = json.loads((tmp_path / "learner.json").read_text())
    assert content["benchmark"] == "learner"
    assert content["targets"].keys() <= content.keys()
    assert content["settings"]["size"]["frames"] == 256


def test_no_rounds_are_refused(capsys):
    with pytest.raises(SystemExit):
        learner.main(["--rounds", "0"])
    assert "--rounds must be at least 1" in capsys.readouterr().err
