"""From a verdict to a reward and to feedback."""
