"""Where metrics go beside the run's own records."""
