"""`tests/runtime/test_once.py`, on PostgreSQL."""

from tests.runtime.test_once import *  # noqa: F403
