"""The guards: checks that find silent failures, before a run or during it (docs/guards.md)."""
