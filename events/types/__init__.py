"""Payload models, one class an event type, grouped by family."""
