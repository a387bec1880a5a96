"""Generated from protos/kerneldyno/v1 by `make proto`. Do not edit."""
