"""`tests/crash/test_sends.py`, on PostgreSQL."""

from tests.crash.test_sends import *  # noqa: F403
