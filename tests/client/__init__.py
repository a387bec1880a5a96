"""Tests of the client and the command line, with a scheduler that breaks on command."""
