"""The run's configuration: model, files and lookup of components."""
