"""Pure parts of context assembly: what is chosen under a budget, and how it reads."""
