"""The bank process of the evaluation: the counter of `evaluation/bank.py` over AgentDojo's banking functions."""

from evaluation import suite
from evaluation.bank import serve

if __name__ == "__main__":
    suite.tasks()  # loaded before the first customer
    serve(suite)
