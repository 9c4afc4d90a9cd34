"""From one configuration to many members, which of them train together, and carrying it out."""
