"""Batteries: what everything in a registry promises, as checks. Tests run them over what is built in, and
`unbraid check-plugin` over what a plugin brings."""

from unbraid.battery.promise import Example, Promise, Verdict, examples_of, judge

__all__ = ["Example", "Promise", "Verdict", "examples_of", "judge"]
