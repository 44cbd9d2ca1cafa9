"""Conversations that keep their prefix: a pinned base, and what has changed since as deltas in the messages."""
