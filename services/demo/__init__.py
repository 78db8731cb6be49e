"""``refold demo``: a small agent runs, is killed, goes on; its read models are shown, refolded and verified."""
