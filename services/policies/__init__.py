"""What was learned to do, for a context: read, kept ready, put into words."""
