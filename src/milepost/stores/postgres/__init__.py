"""A store in a PostgreSQL database, for as many workers on as many machines as it takes. Extra `postgres`."""
