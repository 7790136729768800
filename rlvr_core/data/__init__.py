"""Datasets: from files and the Hub to problems and token ids."""
