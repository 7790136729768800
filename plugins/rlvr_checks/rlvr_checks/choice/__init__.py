"""Multiple choice: data sets, and a verifier that reads a letter or the text of an option."""
