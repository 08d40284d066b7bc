"""Numbered schema changes. A file never changes after its release; its checksum is kept in the store."""
