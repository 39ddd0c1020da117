"""The error of a configuration that cannot work."""


class ConfigError(ValueError):
    """A configuration is refused before anything starts; the text names the flags, the numbers and what would work."""


def require(holds: bool, problem: str) -> None:
    """Refuse a configuration unless a condition holds.

    Raises:
        ConfigError: It does not; `problem` is the text.
    """
    if not holds:
        raise ConfigError(problem)
