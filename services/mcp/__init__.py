"""The Model Context Protocol: tools for models, at ``/mcp`` and on standard input and output."""
