"""Audit and upgrade databases of pgflow, the workflow engine inside PostgreSQL."""

__version__ = "0.1.0"
