"""Tests of several schedulers as clients and nodes see them: lists of addresses, standbys, take-overs."""
