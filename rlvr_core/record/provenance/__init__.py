"""What a run is made of, where its code came from, and what it warned about: ``run.json``."""
