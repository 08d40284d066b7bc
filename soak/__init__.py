"""A fleet under load on PostgreSQL, with everything done to it that is done to fleets: `python -m soak`."""
