"""The report: templates over figures, one self-contained page."""
