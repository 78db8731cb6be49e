"""What ``refold up`` brings along on one machine: its Redis, its data folder."""
