"""SynthSAEBench's world: what it plants, how it fires, and SAELens' files."""

from unbraid.worlds.synth.world import Synth

__all__ = ["Synth"]
