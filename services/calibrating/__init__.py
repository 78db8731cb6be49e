"""Beliefs looked at again on a schedule: which, by what, and the events that say what was found."""
