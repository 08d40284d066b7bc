"""The servers that these tests are about."""

from tests.servers.fixtures import bouncer, database, own_postgres, postgres, postgres_servers, postgres_version

__all__ = ["bouncer", "database", "own_postgres", "postgres", "postgres_servers", "postgres_version"]
