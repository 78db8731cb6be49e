"""What runs: composition, FastStream apps, reactors, the HTTP API and the command line."""
