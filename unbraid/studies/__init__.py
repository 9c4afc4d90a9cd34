"""Studies: the configurations that ship, the claims they test, and the ledger of verdicts."""
