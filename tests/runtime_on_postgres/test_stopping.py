"""`tests/runtime/test_stopping.py`, on PostgreSQL."""

from tests.runtime.test_stopping import *  # noqa: F403
