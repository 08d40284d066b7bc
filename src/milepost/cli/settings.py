"""Which store, App and policy are meant: what the options say, the environment, and pyproject.toml.

The first that says anything wins: the option, then MILEPOST_STORE, MILEPOST_APP or MILEPOST_POLICY, then
`[tool.milepost]` in the pyproject.toml of the current directory. Where nothing names a store, it is the App's own, else
`milepost.db` in the current directory if it is there. A policy or a trust file that is named takes the place of the
App's own.
"""

from __future__ import annotations

import sys
import tomllib
import traceback
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.errors import MilepostError

if TYPE_CHECKING:
    from milepost.app import App

DEFAULT_FILE = "milepost.db"
HOW_APP = '--app module:app, MILEPOST_APP, or app = "module:app" under [tool.milepost] in pyproject.toml'
HOW_POLICY = '--policy FILE, MILEPOST_POLICY, policy = "FILE" under [tool.milepost] in pyproject.toml, or App(policy=…)'
HOW_STORE = '--store FILE, MILEPOST_STORE, or store = "FILE" under [tool.milepost] in pyproject.toml'


class NoStoreGiven(MilepostError):
    """Nothing says which store is meant."""

    code = "no_store_given"

    def __init__(self) -> None:
        super().__init__(
            f"no store is named and there is no {DEFAULT_FILE} here. Name it by {HOW_STORE}; or by the App."
        )


class NoAppGiven(MilepostError):
    """The command needs the App and nothing names it."""

    code = "no_app_given"

    def __init__(self) -> None:
        super().__init__(f"this command needs the code of the workflows. Name the App by {HOW_APP}")


class NoPolicyGiven(MilepostError):
    """The command is about a policy file and nothing names one."""

    code = "no_policy_given"

    def __init__(self) -> None:
        super().__init__(f"no policy file is named, so there is none to look at. Name it by {HOW_POLICY}")


class AppNotFound(MilepostError):
    """The named App cannot be imported, or it is something else."""

    code = "app_not_found"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"the App {name!r} cannot be used: {why}. Write it like module:app, as seen from {Path.cwd()}."
        )
        self.name = name
        self.why = why


class BadSettings(MilepostError):
    """pyproject.toml cannot be read, or what it says of Milepost is no text."""

    code = "bad_settings"

    def __init__(self, why: str) -> None:
        super().__init__(f'pyproject.toml: {why}. Under [tool.milepost] write store = "FILE" and app = "module:app".')
        self.why = why


class Settings:
    """What one command was told. Nothing is read or imported before it is asked for."""

    def __init__(
        self, store: str | None = None, app: str | None = None, policy: str | None = None, trust: Path | None = None
    ) -> None:
        self._store = store
        self._app = app
        self._policy = policy
        self._trust = trust

    @cached_property
    def named_store(self) -> str | None:
        """The URL of the store that was named, None where none was."""
        named = self._store or _configured("store")
        return None if named is None else url_of(named)

    @cached_property
    def named_app(self) -> str | None:
        """The name of the App, None where none was named."""
        return self._app or _configured("app")

    @cached_property
    def named_policy(self) -> str | None:
        """The policy file that was named, None where none was: then the App's own holds."""
        return self._policy or _configured("policy")

    @cached_property
    def named_trust(self) -> Path | None:
        """The trust file that was named, None where none was: then the App's own holds."""
        named = self._trust or _configured("trust")
        return None if named is None else Path(named)

    @cached_property
    def app(self) -> App:
        """The App. Raises NoAppGiven, AppNotFound, BadSettings."""
        if self.named_app is None:
            raise NoAppGiven
        app = load_app(self.named_app)
        if self.named_store is not None:
            app.store = self.named_store
        if self.named_policy is not None:
            app.policy = self.named_policy
        if self.named_trust is not None:
            app.trust = self.named_trust
        return app

    @cached_property
    def url(self) -> str:
        """The URL of the store. Raises NoStoreGiven, AppNotFound, BadSettings."""
        if self.named_store is not None:
            return self.named_store
        if self.named_app is not None:
            return self.app.store
        if Path(DEFAULT_FILE).exists():
            return url_of(DEFAULT_FILE)
        raise NoStoreGiven


def url_of(store: str) -> str:
    """Return the URL of a store that is given as a URL or as a path."""
    return store if "://" in store else f"sqlite:///{store}"


def load_app(name: str) -> App:
    """Import the App that `module:app` names; `:app` may be left out. Raises AppNotFound."""
    from milepost.app import App

    module, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        raise AppNotFound(name, _import_error(error)) from error
    for part in (attribute or "app").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        what = "has no such name" if found is None else f"there it is a {type(found).__name__}, not a milepost.App"
        raise AppNotFound(name, f"{module} {what}" if found is None else what)
    return found


def _import_error(error: BaseException) -> str:
    """Return an error and the line of the user's code that raised it."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    here = str(Path.cwd())
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(here)]
    where = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}: {error}{where}"


def _configured(name: str) -> str | None:
    path = Path("pyproject.toml")
    if not path.is_file():
        return None
    try:
        said = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("milepost", {}).get(name)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise BadSettings(str(error)) from error
    if said is not None and not isinstance(said, str):
        why = f"{name} is {said!r}, no text"
        raise BadSettings(why)
    return said
