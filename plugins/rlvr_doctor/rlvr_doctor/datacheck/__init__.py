"""The gate for task sets: can their problems be answered without being solved?"""
