"""The command line ``refold``: one module a command group; what is slow to import is imported when a command runs."""
