"""Half-precision copies of what several layers are given."""
