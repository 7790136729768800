"""Amazon SageMaker and S3 for rlvr."""
