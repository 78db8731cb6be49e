"""Vectors of texts: models behind one protocol, loaded in a process of their own."""
