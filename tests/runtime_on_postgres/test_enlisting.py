"""`tests/runtime/test_enlisting.py`, on PostgreSQL."""

from tests.runtime.test_enlisting import *  # noqa: F403
