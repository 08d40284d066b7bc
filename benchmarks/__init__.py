"""What durability costs: one command, one table, each figure beside bare SQLite commits that were timed with it."""
