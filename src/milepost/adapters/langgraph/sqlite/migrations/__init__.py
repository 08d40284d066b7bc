"""Numbered changes of LangGraph's tables."""
