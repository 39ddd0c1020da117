"""The custom-algorithm guide's template, verbatim in a package of somebody else's, and the guide's own smoke test."""

import sys

from tests.end_to_end import programs

MODULE = "my_pkg.plugrl_algorithms"
NAMES = ("dummy-policy", "default", "your-algo", "default")
CODE = f"import {MODULE}; from plugrl_server.cli import main; main()"


def test_the_template_passes_the_guides_smoke_test_when_imported_before_main(start, tmp_path):
    server = start(sys.executable, "-c", CODE, *NAMES, "--port", 0, "--exp-name", "smoke")
    port = server.wait_for(r"listening on \S+ port (\d+)")[1]
    client = start(
        *(programs.CLIENT, "dummy-v1", "--server-host", "127.0.0.1", "--server-port", port, "--num-episodes", 1)
    )
    assert client.wait() == 0, client.output
    assert "1 episode" in client.output
    server.interrupt()
    assert server.wait() == 0, server.output
    _, total = programs.account(server.output)
    assert (total.received, total.stored) == (25, 25), "100 steps in chunks of 4"
    assert (tmp_path / "checkpoints/your-algo/dummy-policy/smoke/checkpoints/25").is_dir()


def test_the_template_runs_by_import_flag_until_its_clients_have_finished(serve, tmp_path):
    client = "plugrl-run-env-client dummy-v1 --num-episodes 2"
    server, _ = serve(*NAMES, "--import", MODULE, "--client", client, "--algo.global-steps", 1000)
    assert server.wait() == 0, server.output
    assert "clients finished at step 50 of 1000" in server.output


def test_the_template_is_listed_once_its_module_is_imported(start):
    listing = start(programs.SERVER, *NAMES[:2], "--help", "--import", MODULE)
    assert listing.wait() == 0
    assert "your-algo" in listing.output


def test_a_class_that_is_not_imported_is_a_key_error_after_the_configuration(start):
    server = start(
        *(programs.SERVER, "dummy-policy", "default", "half-algo", "default", "--import", "my_pkg.only_the_config")
    )
    assert server.wait() == 1
    configuration, _, error = server.output.partition("KeyError: 'Algorithm half-algo is not registered.'\n")
    assert "algorithm half-algo default" in configuration
    assert "HalfAlgoConfig" in error or "import" in error
    assert "Traceback" not in server.output
