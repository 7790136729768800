"""The engines that generate text, and the weight sync."""
