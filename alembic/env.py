"""Alembic's entry point: everything that it does is in pgflow_migrate.upgrade.environment."""

from alembic import context

from pgflow_migrate.upgrade import environment

if context.is_offline_mode():
    environment.run_offline(context)
else:
    environment.run_online(context)
