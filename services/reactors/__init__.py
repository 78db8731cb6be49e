"""Reactors: consumers of the log that do outside work and append what they got as events (DESIGN 6)."""
