"""Checks of what each step computes: identities that hold in every healthy run."""
