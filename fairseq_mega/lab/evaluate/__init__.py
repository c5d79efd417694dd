"""Scores of trained models: BLEU, likelihood, accuracy and answers to questions."""
