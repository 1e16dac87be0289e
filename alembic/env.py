"""Alembic's entry point for both chains; the section of the ini file says which: ``alembic -n work_center``.

Everything that it does is in pgflow_migrate.upgrade.environment and pgflow_migrate.work_center.environment.
"""

from alembic import context

if context.config.config_ini_section == "work_center":
    from pgflow_migrate.work_center import environment
else:
    from pgflow_migrate.upgrade import environment  # type: ignore[no-redef]

if context.is_offline_mode():
    environment.run_offline(context)
else:
    environment.run_online(context)
