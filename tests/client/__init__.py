"""Client and command line, against a scheduler that breaks on command."""
