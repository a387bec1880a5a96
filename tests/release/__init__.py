"""Tests of releases: sdist and wheel, an install into an empty environment, licences."""
