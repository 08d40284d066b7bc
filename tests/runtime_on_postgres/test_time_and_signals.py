"""`tests/runtime/test_time_and_signals.py`, on PostgreSQL."""

from tests.runtime.test_time_and_signals import *  # noqa: F403
