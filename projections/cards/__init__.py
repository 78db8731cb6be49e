"""Pure parts of the memory-card read model."""
