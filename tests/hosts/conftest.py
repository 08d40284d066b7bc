"""Tests that are coroutines run in an event loop of their own, bounded in time; each has a store of its own."""

from tests.adapters.conftest import pytest_pyfunc_call, stage

__all__ = ["pytest_pyfunc_call", "stage"]
