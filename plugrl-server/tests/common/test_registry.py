"""Registering, replacing, missing and suggesting (architecture: UIDs, KeyError; lesson 25)."""

import dataclasses
import importlib.metadata
import sys
import textwrap

import pytest
from plugrl_server.common.registry import BuiltIn, Registry

GROUP = "plugrl.tests"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules of a package `builtpkg` that register on `registry`, and removes them afterwards."""
    folder = tmp_path / "builtpkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("registry = None\n")
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        (folder / f"{name}.py").write_text(textwrap.dedent(text))

    yield write
    for name in [name for name in sys.modules if name.split(".")[0] in ("builtpkg", "extramod")]:
        del sys.modules[name]


@pytest.fixture
def registry(package):
    """A registry with one built-in, `walk`, with two variants."""
    package(
        "walk_config",
        """
        import dataclasses, builtpkg

        @builtpkg.registry.register_config("walk")
        @dataclasses.dataclass
        class WalkConfig:
            speed: int = 1

        @builtpkg.registry.register_config("walk", "fast")
        @dataclasses.dataclass
        class FastConfig(WalkConfig):
            speed: int = 9
        """,
    )
    package("walk", "import builtpkg\n\n@builtpkg.registry.register_class('walk')\nclass Walk: pass\n")
    made = Registry("Gait", [BuiltIn("walk", "builtpkg.walk_config", "builtpkg.walk")], GROUP)
    import builtpkg

    builtpkg.registry = made
    return made


def config(name="Config", base=object):
    return dataclasses.make_dataclass(name, [("x", int, 0)], bases=(base,), namespace={"__module__": __name__})


def test_builtins_are_listed_by_their_configuration_modules_alone(registry):
    variants = registry.variants()
    assert list(variants) == ["walk"]
    assert list(variants["walk"]) == ["default", "fast"]
    assert "builtpkg.walk" not in sys.modules
    assert registry.get_class("walk").__name__ == "Walk"
    assert "builtpkg.walk" in sys.modules


def test_a_class_and_its_configurations_are_bound_by_the_uid(registry):
    registry.register_config("run")(first := config())
    registry.register_config("run", "default-fast")(second := config("Other"))
    registry.register_class("run")(cls := type("Run", (), {}))
    assert registry.variants()["run"] == {"default": first, "default-fast": second}
    assert registry.get_class("run") is cls


def test_the_decorators_return_the_class(registry):
    cls = config()
    assert registry.register_config("run")(cls) is cls
    assert registry.register_class("run")(cls) is cls


def test_a_configuration_must_be_a_dataclass(registry):
    with pytest.raises(TypeError, match="must be a dataclass"):
        registry.register_config("run")(object)


def test_config_registered_but_class_not_imported_is_the_documented_key_error(registry):
    registry.register_config("run")(config())
    with pytest.raises(KeyError) as error:
        registry.get_class("run")
    assert type(error.value) is KeyError
    assert str(error.value) == "'Gait run is not registered.'"
    (hint,) = error.value.__notes__
    assert "the module of its class was never imported" in hint
    assert __name__ in hint


def test_an_unknown_uid_names_the_nearest(registry):
    registry.register_config("Gallop_Fast")(config())
    for typed in ("gallop-fast", "galop_fast", "GALLOPFAST", "gallop"):
        assert registry.suggest(typed) == ("Gallop_Fast",)
        with pytest.raises(KeyError) as error:
            registry.get_class(typed)
        assert error.value.__notes__ == ["Did you mean Gallop_Fast?"]


def test_loose_matching_only_suggests(registry):
    with pytest.raises(KeyError):
        registry.get_class("Walk")


def test_a_uid_like_no_other_gets_the_list(registry):
    assert registry.suggest("zzz") == ()
    assert "Registered: walk" in registry.hint("zzz")


def test_two_registrations_by_user_code_are_refused_unless_overridden(registry):
    registry.register_class("run")(type("First", (), {}))
    second = type("Second", (), {})
    with pytest.raises(KeyError, match=r"Gait run is registered twice: by .*First and by .*Second.*override=True"):
        registry.register_class("run")(second)
    assert registry.register_class("run", override=True)(second) is registry.get_class("run")
    registry.register_config("run")(config("A"))
    with pytest.raises(KeyError, match="Gait config run default is registered twice"):
        registry.register_config("run")(config("B"))
    registry.register_config("run", override=True)(config("B"))
    assert registry.variants()["run"]["default"].__name__ == "B"


def test_a_module_that_is_reloaded_may_register_again(registry):
    registry.register_class("run")(type("Run", (), {}))
    registry.register_class("run")(again := type("Run", (), {}))
    assert registry.get_class("run") is again


def test_a_user_replaces_a_builtin_and_it_can_be_said(registry):
    registry.register_config("walk")(mine := config())
    registry.register_class("walk")(cls := type("Mine", (), {}))
    assert registry.get_class("walk") is cls
    assert registry.variants()["walk"] == {"default": mine}
    assert registry.replacement("walk") == f"Gait walk: {__name__}.Mine replaces the built-in."
    registry.register_class("limp")(cls)
    assert registry.replacement("limp") is registry.replacement("run") is None
    assert "builtpkg.walk" not in sys.modules


def test_a_user_s_class_alone_takes_the_builtin_s_configurations(registry):
    registry.register_class("walk")(type("Mine", (), {}))
    assert list(registry.variants()["walk"]) == ["default", "fast"]


def test_a_preset_that_derives_from_the_builtin_s_configuration_adds_to_it(registry):
    base = registry.variants()["walk"]["default"]
    registry.register_config("walk", "moon")(config("Moon", base))
    assert list(registry.variants()["walk"]) == ["default", "fast", "moon"]
    assert registry.get_class("walk").__name__ == "Walk"


def test_a_configuration_of_its_own_under_a_builtin_s_uid_needs_its_own_class(registry):
    registry.get_class("walk")
    registry.register_config("walk")(config("Foreign"))
    with pytest.raises(KeyError, match="Gait walk is not registered"):
        registry.get_class("walk")


def test_lesson_25_a_builtin_without_its_extra_stays_listed_with_the_install_command(package):
    decorators = "@builtpkg.registry.register_config('fly')\n@dataclasses.dataclass"
    package("fly_config", f"import dataclasses, builtpkg\n\n{decorators}\nclass Fly: pass\n")
    registry = Registry(
        "Gait", [BuiltIn("fly", "builtpkg.fly_config", "builtpkg.fly", needs=("no_such_wings",), extra="wings")], GROUP
    )
    import builtpkg

    builtpkg.registry = registry
    assert list(registry.variants()) == ["fly"]
    assert registry.missing_extras() == {"fly": "uv pip install 'plugrl-server[wings]'"}
    with pytest.raises(
        ImportError, match=r"Gait fly needs plugrl-server\[wings\], which is not installed: uv pip install 'plugrl"
    ):
        registry.get_class("fly")


def test_a_package_without_an_extra_is_installed_by_its_name():
    builtin = BuiltIn("swim", "pkg.swim_config", "pkg.swim", needs=("no_such_fins",))
    assert (builtin.missing, builtin.install_command) == ("no_such_fins", "uv pip install no_such_fins")
    assert BuiltIn("walk", "pkg.walk_config", "pkg.walk", needs=("json",)).install_command is None


def test_a_package_s_own_extra_is_named_in_quotes():
    builtin = BuiltIn("swim", "pkg.swim_config", "pkg.swim", needs=("json", "no_such_fins"), requirement="sea[fins]")
    assert builtin.install_command == "uv pip install 'sea[fins]'"


def test_an_installed_extra_is_not_missing(registry):
    assert registry.missing_extras() == {}


class FakeEntryPoint:
    def __init__(self, name, load):
        self.name, self.value, self.load = name, f"{name}:module", load


def entry_points(monkeypatch, *found):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found if group == GROUP else ())


def test_entry_points_register_when_something_is_looked_up(registry, monkeypatch):
    def load():
        registry.register_config("plug")(config())
        registry.register_class("plug")(type("Plug", (), {}))

    entry_points(monkeypatch, FakeEntryPoint("plug", load))
    assert "plug" in registry.variants()
    assert registry.get_class("plug").__name__ == "Plug"


def test_a_broken_entry_point_is_reported_and_not_fatal(registry, monkeypatch, caplog):
    def load():
        raise SyntaxError("bad line")

    entry_points(monkeypatch, FakeEntryPoint("broken", load))
    assert list(registry.variants()) == ["walk"]
    assert registry.broken_entry_points == {"broken": "SyntaxError: bad line"}
    assert "Entry point broken of plugrl.tests (broken:module) could not be loaded" in caplog.text
    assert registry.hint("broken") == "The entry point broken could not be loaded: SyntaxError: bad line"
    caplog.clear()
    registry.variants()
    assert caplog.text == ""
