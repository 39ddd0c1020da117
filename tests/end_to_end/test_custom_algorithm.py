"""The custom-algorithm guide's template, verbatim, in either place the guide names, and the guide's own smoke test."""

import shutil
import sys
from pathlib import Path

import plugrl_server
import pytest

from tests.end_to_end import programs

MODULE = "my_pkg.plugrl_algorithms"
NAMES = ("dummy-policy", "default", "your-algo", "default")
OF_CONFIG = "from plugrl_server.algorithm.your_algo.your_algo_config import UID, YourAlgoConfig\n\n"
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


@pytest.fixture
def begin_inside(start, tmp_path):
    """`begin_inside(imports)`: a server of a copy of plugrl-server, with the template in the files the guide names."""
    copy = tmp_path / "copy"
    shutil.copytree(
        Path(plugrl_server.__file__).parent, copy / "plugrl_server", ignore=shutil.ignore_patterns("__pycache__")
    )
    template = (programs.PLUGINS / "my_pkg" / "plugrl_algorithms.py").read_text(encoding="utf-8")
    config, decorator, algorithm = template.partition("@register_algo(UID)\n")
    imports = config.partition("UID = ")[0]
    folder = copy / "plugrl_server" / "algorithm" / "your_algo"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "your_algo_config.py").write_text(config, encoding="utf-8")
    (folder / "your_algo.py").write_text(imports + OF_CONFIG + decorator + algorithm, encoding="utf-8")

    def begin(imports, *argv):
        with (copy / "plugrl_server" / "algorithm" / "__init__.py").open("a", encoding="utf-8") as file:
            file.write(imports)
        code = f"import sys; sys.path.insert(0, {str(copy)!r}); from plugrl_server.cli import main; main()"
        return start(sys.executable, "-c", code, *NAMES, "--port", 0, *argv)

    return begin


def test_the_template_runs_from_the_files_that_the_guide_names_in_plugrl_server(begin_inside):
    client = "plugrl-run-env-client dummy-v1 --num-episodes 1"
    server = begin_inside(
        "from plugrl_server.algorithm.your_algo import your_algo, your_algo_config\n", "--client", client
    )
    assert server.wait() == 0, server.output
    assert "clients finished at step 25 of 100000" in server.output


def test_importing_the_configuration_alone_there_is_the_guide_s_key_error_after_the_configuration(begin_inside):
    server = begin_inside("from plugrl_server.algorithm.your_algo import your_algo_config\n")
    assert server.wait() == 1
    configuration, _, rest = server.output.partition("KeyError: 'Algorithm your-algo is not registered.'\n")
    assert "algorithm your-algo default: global_steps=100000" in configuration
    assert "the module of its class was never imported" in rest
    assert "Traceback" not in server.output
