"""Device memory: what a problem needs (`footprint`), what timing may take more (`surplus`), who gets it (`ledger`)."""
