"""Contexts: what is read for one, how it is recorded and made again, where a value was lost."""
