"""From what happened repeatedly to what is done next time: pure rules, no I/O."""
