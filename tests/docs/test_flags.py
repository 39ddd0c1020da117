"""The guide's page of the command line names every flag of both commands, and no flag that is not there."""

import dataclasses
import re

import pytest
from plugrl_env_client.options import ClientOptions, options_type
from plugrl_env_client.registration import BUILT_IN, env_config
from plugrl_server.run_config import RunConfig

from tests.docs import pages

PAGES = [pages.ROOT / "docs/guide/cli.md", pages.ROOT / "docs/guide/cli.zh.md"]
SERVER_HEADING, CLIENT_HEADING = "## plugrl-run-server", "## plugrl-run-env-client"
ANY_CONFIGURATION = {"--policy.device", "--algo.global-steps"}


def flags(config, prefix=""):
    """The flags of a configuration class: `(name, is a switch)`, groups joined by dots."""
    for field in dataclasses.fields(config):
        name = {"modules": "import", "import_": "import"}.get(field.name, field.name).replace("_", "-")
        group = field.default_factory if dataclasses.is_dataclass(field.default_factory) else None
        if group is not None:
            yield from flags(group, f"{prefix}{name}.")
        else:
            yield f"--{prefix}{name}", isinstance(field.default, bool) and field.default


def family_flags():
    for uid in BUILT_IN:
        yield from flags(env_config(uid), "env.")


def halves(page):
    """The page's part about the server, and its part about the client."""
    _, server = page.read_text().split(f"{SERVER_HEADING}\n", 1)
    return server.split(f"{CLIENT_HEADING}\n", 1)


def named(text):
    """The flags in a part's tables."""
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    return set(re.findall(r"`(--[\w.-]+)", rows))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_flag_is_described(page):
    server, client = halves(page)
    assert {name for name, _ in flags(RunConfig)} - named(server) == set()
    assert {name for name, _ in [*flags(ClientOptions), *family_flags()]} - named(client) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_flag_is_made_up(page):
    server, client = halves(page)
    assert named(server) - with_negations(flags(RunConfig)) - ANY_CONFIGURATION - {"--policy.", "--algo."} == set()
    assert named(client) - with_negations([*flags(ClientOptions), *family_flags()]) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_switch_that_is_on_by_default_shows_how_to_turn_it_off(page):
    server, client = halves(page)
    for text, config in ((server, RunConfig), (client, ClientOptions)):
        assert {off(name) for name, on in flags(config) if on} <= named(text)


def with_negations(found):
    names = {name for name, _ in found}
    return names | {off(name) for name in names}


def off(name):
    group, dot, flag = name.removeprefix("--").rpartition(".")
    return f"--{group}{dot}no-{flag}"


def test_the_options_of_a_family_are_those_of_its_configuration():
    assert "env" in {field.name for field in dataclasses.fields(options_type(env_config("classic-v1")))}


@pytest.mark.parametrize("page", ["docs/environments/overview.md", "docs/environments/overview.zh.md", *PAGES])
def test_a_table_of_families_lists_every_one(page):
    rows = re.findall(r"^\| `([\w-]+-v1)` \|", (pages.ROOT / page).read_text(), re.MULTILINE)
    assert set(rows) == set(BUILT_IN)


@pytest.mark.parametrize("page", ["overview.md", "overview.zh.md"])
def test_the_overview_says_what_each_family_needs(page):
    text = (pages.ROOT / "docs/environments" / page).read_text()
    for family in BUILT_IN.values():
        [row] = [line for line in text.splitlines() if line.startswith(f"| `{family.uid}` |")]
        needs = family.extra or (family.also[0].split(">")[0] if family.also else None)
        assert needs is None or f" `{needs}` |" in row
