"""FastStream apps: lifecycle, subscriptions and their description; ADR 0002 says where the loops are ours, and why."""
