"""What comes with rlvr beside the kernel: rooms that register by the hooks any plugin has."""
