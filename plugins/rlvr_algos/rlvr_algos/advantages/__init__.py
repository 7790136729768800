"""Advantage estimators that come with rlvr."""
