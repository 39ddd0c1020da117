"""What an author sees of the guide's known mistakes: each is said once, with its remedy, and the run goes on."""

RUN = ("dummy-policy", "default", "mistaken", "default", "--import", "mistaken", "--exp-name", "mistaken")
CLIENT = ("--client", "plugrl-run-env-client dummy-v1 --num-envs 2")
EVERY = ("--algo.learn-every", 50, "--algo.save-interval", 60)


def mistakes(*names):
    return ("--algo.mistakes", *names)


def test_mistakes_that_do_not_stop_a_run_are_said_once_each(serve):
    server, _ = serve(*RUN, *CLIENT, *EVERY, "--algo.global-steps", 400, *mistakes("records-nothing", "saves-on"))
    assert server.wait() == 0, server.output
    for advice in (
        "--algo.action-horizon and --policy.action-horizon say the same thing twice",
        "feedback() never calls record_episode_metrics()",
        "should_save() is still true after create_checkpoint()",
    ):
        assert server.output.count(advice) == 1, server.output


def test_learning_without_end_is_said_and_can_be_interrupted(serve):
    server, _ = serve(*RUN, *CLIENT, *EVERY, *mistakes("learns-on"))
    server.wait_for(r"should_learn\(\) is still true after learn\(\)")
    server.interrupt()
    assert server.wait() == 0, server.output


def test_counters_that_are_not_restored_are_said_on_resume(serve):
    started, _ = serve(*RUN, *CLIENT, *EVERY, "--algo.global-steps", 200)
    assert started.wait() == 0, started.output
    resumed, _ = serve(*RUN, *CLIENT, "--resume", "--algo.global-steps", 600, *mistakes("restores-no-counters"))
    assert resumed.wait() == 0, resumed.output
    assert "learned_at is 0, was 200; should_save() is true" in resumed.output
    assert resumed.output.count("restore all of them in load_checkpoint()") == 1
