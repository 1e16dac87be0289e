"""A report, or the findings of a refusal, in every form that people and programs read."""

from pgflow_migrate.audit.render.annotations import github
from pgflow_migrate.audit.render.document import document
from pgflow_migrate.audit.render.grid import findings_table, table
from pgflow_migrate.audit.render.page import html
from pgflow_migrate.audit.render.suite import junit

__all__ = ["document", "findings_table", "github", "html", "junit", "table"]
