"""Tests of traces: on files, and on a PostgreSQL server where reading takes a moment."""

from tests.servers.fixtures import postgres_servers

__all__ = ["postgres_servers"]
