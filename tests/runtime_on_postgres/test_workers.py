"""`tests/runtime/test_workers.py`, on PostgreSQL."""

from tests.runtime.test_workers import *  # noqa: F403
