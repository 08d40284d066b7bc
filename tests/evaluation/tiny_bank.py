"""The bank of the tests, in a process of its own."""

from evaluation.bank import serve
from tests.evaluation import tiny_suite

if __name__ == "__main__":
    serve(tiny_suite)
