"""The training library: rewards, estimators and trainer adapters. Nothing is here yet; see the roadmap in README.md."""
