"""Where accepted work is kept: the interface, SQLite and memory behind it, and the journal that commits in groups."""
