"""The embedded store: one SQLite file through apsw, written by any number of processes of one machine."""
