"""The faults of docs/FAULTS.md, each run for real: `python -m faults` (`make faults`)."""
