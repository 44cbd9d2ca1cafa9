"""Keeping a store: erasing what has to be gone."""
