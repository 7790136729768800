"""The plugin host: loads every installed plugin, each isolated from the others' faults.

A plugin that fails while it is imported or registered cannot stop another plugin or ``rlvr``
itself: the failure is kept in its ``PluginRecord`` and becomes an error only when a component of
that plugin is used.
"""
