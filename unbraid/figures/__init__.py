"""Figures: from the tables of a run to Altair charts, once for notebook, report and explorer.

>>> import unbraid as ub
>>> ub.draw(ub.load_run("runs/quickstart-20261118-102138"))  # doctest: +SKIP
"""

from collections.abc import Sequence

from unbraid.figures import dictionaries, heads, models, recovery, scores, tracking  # noqa: F401 they register their sections
from unbraid.figures.figure import SECTIONS, Cell, Figure, Section, Table, draw_section, section
from unbraid.results import RunResults

__all__ = ["SECTIONS", "Cell", "Figure", "Section", "Table", "draw", "draw_section", "section"]


def draw(results: RunResults, names: Sequence[str] | None = None) -> list[Section]:
    """The sections that a run's kind names, or those asked for, where they have something to show.

    Parameters
    ----------
    results : RunResults
        What `load_run` returned.
    names : sequence of str, optional
        Sections by name; by default those of the run's report, in order.

    Returns
    -------
    list of Section
        Each with its figures and tables; a figure shows itself in a notebook.

    Examples
    --------
    >>> import unbraid as ub
    >>> results = ub.load_run("runs/demo")  # doctest: +SKIP
    >>> ub.draw(results, ["score_figures"])[0].figures[0]  # doctest: +SKIP
    >>> ub.draw(results)[0].figures[0].png()  # doctest: +SKIP
    >>> from unbraid.figures import SECTIONS
    >>> "score_figures" in SECTIONS
    True
    """
    sections = [draw_section(results, name) for name in (results.sections if names is None else names)]
    return [section for section in sections if section is not None]
