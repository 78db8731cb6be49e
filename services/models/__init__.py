"""Models behind OpenAI-compatible endpoints: which one answers where, and one client that calls them."""
