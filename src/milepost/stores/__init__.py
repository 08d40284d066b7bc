"""Durable verbs: what must be written together is one operation, and every owned write carries its epoch."""
