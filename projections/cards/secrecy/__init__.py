"""What of a text must not be told on, pure: which values are secrets, and which only look like one."""
