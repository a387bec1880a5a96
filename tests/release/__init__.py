"""Sdist and wheel, an install into an empty environment, licences."""
