"""The documentation: its commands, programs, links, layout and site."""
