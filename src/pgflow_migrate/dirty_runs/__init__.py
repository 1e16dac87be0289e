"""Dirty Runs: the bounded A → B protocol, as data, and what the two sides of it have in common."""
