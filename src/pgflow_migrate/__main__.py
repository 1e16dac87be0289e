"""``python -m pgflow_migrate``."""

from pgflow_migrate.cli import main

if __name__ == "__main__":
    main(prog_name="pgflow-migrate")
