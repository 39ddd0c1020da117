"""`none` on the command line, as docs and advice write it: tyro itself only knows `None`."""

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo


def reading_none() -> ConstructorRegistry:
    """Return the rules (a context for `tyro.cli`) by which `none`, in any case, is None wherever a field may be."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def none_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[None] | None:
        if info.type is not type(None):
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="none",
            instance_from_str=_none,
            is_instance=lambda value: value is None,
            str_from_instance=lambda _: ["none"],
        )

    return registry


def _none(words: list[str]) -> None:
    if [word.lower() for word in words] != ["none"]:
        raise ValueError(f"{' '.join(words)} is not none")
