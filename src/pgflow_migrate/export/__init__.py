"""A copy of pgflow's rows and of its queues in one file, and a database made of such a file again.

pg_dump leaves the queues of PGMQ 1.5.1, their messages and their metadata out: they are members of an
extension. The format is described in docs/replay.md.
"""

from pgflow_migrate.export.document import Header, Pgmq
from pgflow_migrate.export.file import ExportExistsError, ExportFileError, Reader
from pgflow_migrate.export.rebuild import Rebuilt, rebuild
from pgflow_migrate.export.write import Copied, Copying, Exported, export

__all__ = [
    "Copied",
    "Copying",
    "ExportExistsError",
    "ExportFileError",
    "Exported",
    "Header",
    "Pgmq",
    "Reader",
    "Rebuilt",
    "export",
    "rebuild",
]
