"""Engine ``vllm-shared``: one vLLM engine for several training processes."""
