"""Reads of the read models: documents for API and CLI. What depends on *now* is computed here, never in a fold.

Every function takes a connection to the read model's active generation, an org, and the key that the caller is entitled
to; nothing reads across orgs or keys without being asked by key.
"""
