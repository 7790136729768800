"""The faults, one module a class."""
