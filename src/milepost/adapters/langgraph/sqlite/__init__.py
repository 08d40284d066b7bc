"""The SQL of LangGraph's checkpoints, for this kind of store."""
