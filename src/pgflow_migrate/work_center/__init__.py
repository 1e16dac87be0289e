"""The Work Center's store: a SQLite file, and the thirteen steps that take it from version 22 to 35.

The Work Center program migrates its store itself. What is here does the same to the byte, so that a file can
go from the one to the other at any step; :mod:`pgflow_migrate.work_center.upgrade` is the way in.
"""
