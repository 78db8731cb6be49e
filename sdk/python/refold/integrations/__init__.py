"""Adapters to frameworks that agents are written in; each is imported by itself, and needs its framework."""
