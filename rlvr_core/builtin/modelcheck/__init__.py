"""What is known of a model before it is trained: whether its files are whole, and its figures."""
