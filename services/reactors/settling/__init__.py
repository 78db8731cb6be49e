"""The parts of the settler, all pure: a run's conversation, its fit into a window, what is asked and accepted."""
