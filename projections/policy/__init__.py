"""What of everything that was learned applies in a context, pure: triggers, selection, the text of it."""
