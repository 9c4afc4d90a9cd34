"""A run is a graph of stages: experiment kinds, the stages they have, and how they are carried out."""
