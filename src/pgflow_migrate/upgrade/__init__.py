"""Taking a database through the chain of revisions, in one transaction."""
