"""Erasing: a subject's words are gone from every store, and everybody can see how far that is."""
