"""Whether an upgraded database keeps what queue identity promises; read-only, at any time."""
