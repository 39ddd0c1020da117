from plugrl_server.training.learning_curve import draw

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_mean_return_is_drawn(tmp_path):
    rows = [{"step": step, "time": 0.0, "rollout/reward": -float(step), "losses/x": 1.0} for step in range(60)]
    rows.append({"step": 60, "time": 0.0, "losses/x": 1.0})
    assert draw(rows, tmp_path / "curve.png", "run") == f"learning curve: {tmp_path}/curve.png"
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)


def test_without_episodes_the_losses_are_drawn(tmp_path):
    rows = [{"step": 1, "time": 0.0, "losses/a": 1.0, "losses/b": None}, {"step": 2, "time": 1.0, "losses/a": 0.5}]
    assert draw(rows, tmp_path / "curve.png", "run") == f"learning curve: {tmp_path}/curve.png"
    assert (tmp_path / "curve.png").exists()


def test_without_any_number_there_is_a_note_and_no_file(tmp_path):
    assert draw([], tmp_path / "curve.png", "run") == "no learning curve: no learn step reported a number"
    assert not (tmp_path / "curve.png").exists()


def test_a_picture_that_cannot_be_written_does_not_fail_the_run(tmp_path):
    note = draw([{"step": 1, "rollout/reward": 1.0}], tmp_path / "missing" / "curve.png", "run")
    assert note.startswith("no learning curve: FileNotFoundError")
