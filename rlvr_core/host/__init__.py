"""The plugin host: loads every installed plugin, each isolated from the others' faults.

Nothing a plugin does while it is imported or registers can stop another plugin or ``rlvr``
itself: it becomes a record. A record turns into an error only when a name of that plugin is
needed.
"""
