"""Reports: read run directories, write a page. Never a model, only what is on disk."""
