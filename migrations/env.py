"""Alembic's entry: runs the scripts on the connection that ``migrations.migrate`` hands in, in its transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
