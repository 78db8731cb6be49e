"""The SQL side of the log: every position, in order, with a verdict; the commit point of the backend."""
