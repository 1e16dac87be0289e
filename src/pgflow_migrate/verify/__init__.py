"""Whether an upgraded database keeps what its revision promises; read-only, at any time."""
