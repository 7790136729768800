"""What only a policy sharded over processes needs, for train.parallel: fsdp."""
