"""${message}"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


# Processes of the code before go on beside this one: add, do not change or drop. Where that cannot be, write
# ('needs_revision', revision) into log_config, so that they refuse to start.


def upgrade() -> None:
    ${upgrades if upgrades else "..."}


def downgrade() -> None:
    ${downgrades if downgrades else "..."}
