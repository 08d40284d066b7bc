"""Charges that were made twice, or never: the same crash on four engines, counted by the ledger of who was paid."""
