"""Searching cards: scope indexes in memory, the query's vector, the answer."""
