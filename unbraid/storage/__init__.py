"""Files that notice damage: atomic writes, checksums, checkpoints, run directories, the cache of stages."""
