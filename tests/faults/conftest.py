"""The servers that the proxy is tried in front of."""

from tests.servers.fixtures import database, postgres, postgres_servers, postgres_version

__all__ = ["database", "postgres", "postgres_servers", "postgres_version"]
