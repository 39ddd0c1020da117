"""Every row that clients send is stored or discarded, for a stated reason, and what is stored is what the env did.

Three clients of ragged episodes, action chunks of 4, an on-policy algorithm whose policy versions move on. Lesson 1
(every stored transition is its own client's), lesson 4 (none is stored twice), lesson 16 (flags stay apart), lesson 2
(one client's end does not hurt the others).
"""

import sys

import pytest

from tests.end_to_end import programs

sys.path.insert(0, str(programs.PLUGINS))
try:
    import ragged
finally:
    sys.path.remove(str(programs.PLUGINS))

HORIZON = 4
RUN = ("dummy-policy", "default", "recorder", "default", "--import", "recorder", "--exp-name", "accounting")
STEPS = ("--algo.file", "stored.jsonl", "--algo.learn-every", 64)
NUM_ENVS = (3, 2, 1, 1)


def client(number, *more):
    flags = ("ragged-v1", "--import", "ragged", "--num-envs", NUM_ENVS[number], "--env.client-number", number)
    return (*flags, *more)


def test_three_ragged_clients_are_accounted_for_row_by_row(serve, start, tmp_path):
    server, port = serve(*RUN, *STEPS, "--algo.global-steps", 900)
    clients = [start(programs.CLIENT, *client(number), "--server-port", port) for number in range(3)]
    assert server.wait() == 0, server.output
    for number, one in enumerate(clients):
        assert one.wait() == 0, (number, one.output)

    connections, total = programs.account(server.output)
    counted = sorted(rows.received for _, rows in connections)
    told = [programs.sent(one.output) for one in clients]
    assert {ending for ending, _ in connections} == {"closed"}
    assert counted == sorted(rows for rows, _ in told), "each connection's count is its client's"
    assert [unconfirmed for _, unconfirmed in told] == [0, 0, 0]
    check_sums(connections, total)
    check_record(tmp_path / "stored.jsonl", total, clients={0, 1, 2})


def test_a_client_that_is_killed_leaves_sums_that_agree_up_to_its_last_message(serve, start, tmp_path):
    server, port = serve(*RUN, *STEPS, "--algo.global-steps", 10**9)
    doomed = start(programs.CLIENT, *client(0, "--env.die-at-sight-of", "now"), "--server-port", port)
    others = [start(programs.CLIENT, *client(number), "--server-port", port) for number in (1, 2)]
    server.wait_for(r"connection 3 .*opened")
    (tmp_path / "now").touch()
    assert doomed.wait() == -9, doomed.output
    later = start(programs.CLIENT, *client(3, "--num-episodes", 5), "--server-port", port)
    assert later.wait() == 0, "the server goes on without the client that was killed"
    server.interrupt()
    assert server.wait() == 0, server.output
    assert [one.wait() for one in others] == [0, 0]

    connections, total = programs.account(server.output)
    counted = sorted(rows.received for ending, rows in connections if ending == "closed")
    assert counted == sorted(programs.sent(one.output)[0] for one in (*others, later))
    assert [ending for ending, _ in connections].count("cut") == 1
    check_sums(connections, total)
    check_record(tmp_path / "stored.jsonl", total, clients={0, 1, 2, 3})


def check_sums(connections, total):
    """Received = stored + discarded, by reason, for each connection and in total."""
    for rows in (total, *(rows for _, rows in connections)):
        assert rows.received == rows.stored + rows.discarded
        assert rows.discarded == sum(rows.reasons.values())
    for field in ("received", "stored", "discarded"):
        assert getattr(total, field) == sum(getattr(rows, field) for _, rows in connections)


def check_record(path, total, *, clients):
    """What the algorithm was handed is as many rows as the account says, each of which some env really did."""
    rows = programs.json_lines(path)
    stored = [row for row in rows if "obs" in row]
    assert len(stored) == total.stored
    assert len(rows) - len(stored) == sum(n for reason, n in total.reasons.items() if reason in {"stale", "learning"})
    assert {int(row["obs"][0]) for row in stored} == clients
    places = [tuple(row["obs"][:4]) for row in stored]
    assert len(set(places)) == len(places), "a transition was stored twice"
    for row in stored:
        check_transition(row)
    check_chains(stored)


def check_transition(row):
    """One stored transition against the formulae of the environment."""
    origin, begun = tuple(int(number) for number in row["obs"][:3]), int(row["obs"][3])
    assert tuple(int(number) for number in row["next_obs"][:3]) == origin, "rows of two episodes were joined"
    ended = int(row["next_obs"][3])
    length = ragged.episode_length(*origin)
    assert ended == min(begun + HORIZON, length)
    assert row["next_obs"][4] == pytest.approx(row["action"][ended - begun - 1]), "the env ran another action"
    assert row["reward"] == sum(ragged.step_reward(*origin, step) for step in range(begun + 1, ended + 1))
    done, terminal = ended == length, ragged.terminates(origin[2])
    assert (row["next_terminated"], row["next_truncated"]) == (done and terminal, done and not terminal)
    if begun > 0:
        assert (row["terminated"], row["truncated"]) == (False, False)


def check_chains(stored):
    """`prev_node` names the frame before this one of the same env, or none after a gap."""
    by_node = {row["node"]: row for row in stored}
    for row in stored:
        slot, key = row["prev_node"]
        if slot == -1:
            assert key == ""
            continue
        previous = by_node[slot]
        assert previous["obs"][:2] == row["obs"][:2]
        if row["obs"][3] > 0:
            assert previous["next_obs"] == row["obs"]
        else:
            assert (previous["next_terminated"], previous["next_truncated"]) == (row["terminated"], row["truncated"])
