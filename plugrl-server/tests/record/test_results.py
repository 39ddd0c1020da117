"""What a run measured, on disk."""

from plugrl_server.record.results import Results


def test_the_table_is_plain_csv_with_every_digit(tmp_path):
    rows = [(0, 1 / 3, True, None), (1, -2.0, False, 7)]
    file = Results([], {}, ("index", "return", "success", "seed"), rows).write(tmp_path)
    assert file == tmp_path / "episodes.csv"
    assert file.read_bytes() == b"index,return,success,seed\n0,0.3333333333333333,1,\n1,-2.0,0,7\n"
    assert [path.name for path in tmp_path.iterdir()] == ["episodes.csv"]


def test_a_table_replaces_an_earlier_one(tmp_path):
    Results([], {}, ("index",), [(0,), (1,)]).write(tmp_path)
    assert Results([], {}, ("index",), []).write(tmp_path).read_text() == "index\n"
