"""Pieces that losses share (ratio, KL, means, entropy), and the checks of an estimator."""
