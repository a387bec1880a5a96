"""Tests of the documentation: its commands, programs, links, layout and site."""
