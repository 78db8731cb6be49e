"""Importers: recorded trajectories of other tools, turned into raw events for the door.

An importer is a pure generator: the bytes of one file in, runs of raw events out (``registry.FORMATS``). Its ids are
made from the content, so a second import of the same file changes nothing.
"""
