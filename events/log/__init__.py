"""The Redis side of the log: append, tail, trim, and recovery of what Redis lost."""
