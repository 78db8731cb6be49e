"""Benchmarks over recorded data that users have, too: of contexts, of retrieval."""
