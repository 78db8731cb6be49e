"""Memory packs: what a scope has learned, as one file that another instance, or another scope, takes in.

``form`` says what a pack is; ``gathering`` reads a scope into one; ``writing`` and ``reading`` are its bytes;
``proposals`` turns it into events; ``importing`` publishes those and tells what became of them.
"""
