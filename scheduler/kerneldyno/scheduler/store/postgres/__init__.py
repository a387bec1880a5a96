"""The store in PostgreSQL, which one active scheduler and its standbys share. Needs the extra `postgres`."""
