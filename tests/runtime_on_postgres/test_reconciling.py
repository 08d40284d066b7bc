"""`tests/runtime/test_reconciling.py`, on PostgreSQL."""

from tests.runtime.test_reconciling import *  # noqa: F403
