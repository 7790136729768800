"""What only a job's own machines can say, looked at by its processes before the model is loaded."""
