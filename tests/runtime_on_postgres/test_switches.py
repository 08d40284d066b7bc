"""`tests/runtime/test_switches.py`, on PostgreSQL."""

from tests.runtime.test_switches import *  # noqa: F403
