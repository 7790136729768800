"""Seeing runs of rlvr: a page of one run or several, rollouts in a browser, a chat."""
