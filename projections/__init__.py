"""What it means now: read models as pure folds of the log, and the engine that runs them."""
