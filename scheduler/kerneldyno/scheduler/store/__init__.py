"""Durable storage of accepted work: the SQLite and memory stores, and the journal that commits records in groups."""
