"""Where accepted work is kept: the interface (`base`), SQLite (`sqlite`), memory (`memory`), and the group commit (`journal`)."""
