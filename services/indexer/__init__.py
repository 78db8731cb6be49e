"""The indexer: vectors for what can be searched, made in the background."""
