"""Tests of agents run as those of the runtime do: coroutines, on a store of their own."""

from tests.runtime.conftest import pytest_pyfunc_call, stage
from tests.servers.fixtures import postgres_servers

__all__ = ["postgres_servers", "pytest_pyfunc_call", "stage"]
