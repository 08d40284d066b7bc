"""Where secrets come from unless the app says otherwise: the environment."""

from __future__ import annotations

import os

from milepost.errors import MilepostError


class SecretMissing(MilepostError):
    """The provider has no secret of this name."""

    code = "secret_missing"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no secret {name!r} in the environment. Set the variable {name}, or give the app a provider of "
            "your own: App(…, secrets=…)."
        )
        self.name = name


def from_environment(name: str) -> str:
    """Return the environment variable of that name. Raises SecretMissing where it is unset or empty."""
    value = os.environ.get(name)
    if not value:
        raise SecretMissing(name)
    return value
