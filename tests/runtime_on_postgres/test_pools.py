"""`tests/runtime/test_pools.py`, on PostgreSQL."""

from tests.runtime.test_pools import *  # noqa: F403
