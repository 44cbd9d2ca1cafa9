"""One adapter per provider: a layout and the caller's messages, spelled as the keyword arguments of its SDK.

Adapters decide nothing about blocks, order or marks; they make plain dictionaries, and need no SDK for it.
"""
