"""Support for a policy sharded over processes, ``train.parallel: fsdp``."""
