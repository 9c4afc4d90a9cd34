"""The explorer: run directories as pages in a browser, served on this machine."""
