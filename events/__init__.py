"""What happened: the envelope, the event types, the door, the log and its archive."""
