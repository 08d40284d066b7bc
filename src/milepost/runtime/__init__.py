"""What drives a run, async only: load, decide, append, perform."""
