"""The losses that come with rlvr, one short file each."""
