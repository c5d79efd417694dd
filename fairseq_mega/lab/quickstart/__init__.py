"""The quick start: from nothing to a trained model that shows what it can do."""
