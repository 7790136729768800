"""The samplers that come with rlvr."""
