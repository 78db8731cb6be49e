"""Pure parts of the task-state read model."""
