"""`tests/runtime/test_children.py`, on PostgreSQL."""

from tests.runtime.test_children import *  # noqa: F403
