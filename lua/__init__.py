"""The delay store's scripts, as a package resource; `bridge.store.scripts` reads them."""
