"""Registers what rlvr-code offers."""

from __future__ import annotations
