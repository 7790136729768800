from tests.support.plugin_site import good_plugin, new_site, site

__all__ = ["good_plugin", "new_site", "site"]
