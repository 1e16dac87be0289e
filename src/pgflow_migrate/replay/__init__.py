"""Replaying populated old databases through audit and upgrade."""
