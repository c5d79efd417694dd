"""The quick start: from an empty folder to a trained model and examples of its output."""
