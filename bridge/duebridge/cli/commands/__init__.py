"""The commands, a module for each or for each group of them; `duebridge.cli.app` names them."""
