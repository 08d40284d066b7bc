"""Tests of traces: on files, and on a PostgreSQL server where reading takes a moment."""

from tests.runtime.conftest import pytest_pyfunc_call
from tests.servers.fixtures import postgres_servers

__all__ = ["postgres_servers", "pytest_pyfunc_call"]
