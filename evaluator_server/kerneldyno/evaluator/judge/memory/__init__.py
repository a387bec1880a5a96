"""Device memory: what a problem needs (`footprint`), what timing may add (`surplus`), who gets it (`ledger`)."""
