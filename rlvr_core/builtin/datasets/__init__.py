"""Data sets that know no domain: files and the hub."""
