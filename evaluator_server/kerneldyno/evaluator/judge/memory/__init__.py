"""Memory: what a problem needs (`footprint`), what timing may add (`surplus`), who gets it (`ledger`; of hosts: `host`)."""
