"""Read dictionaries from wherever they are: `ub.load`."""

from pathlib import Path

from unbraid.dictionaries.formats.convert import read_checked
from unbraid.dictionaries.formats.hub import fetch, is_hub_id
from unbraid.dictionaries.stack import Stack


def load(path: str | Path) -> Stack:
    """Read dictionaries: ours, a run's, or those of SAELens, dictionary_learning, sparsify, Gemma Scope and others.

    The format is found out. A dictionary of another library is converted exactly, or refused with the reason; the
    conversion is checked on random inputs. Its codes are those that the other library gives.

    Parameters
    ----------
    path : str or Path
        A folder, a file (a PyTorch file, which is a pickle, must be named itself), a run directory, or a hub id as
        "owner/name" or "owner/name/subfolder", which is fetched.

    Returns
    -------
    Stack
        The dictionaries; `metadata` has what the files say of them and, of other libraries' files, `source`: the
        format, what was folded into the weights, and the largest difference found.

    Examples
    --------
    >>> import unbraid as ub
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=8), dimensions=4, seeds=[0])
    >>> stack.save("mine")
    >>> ub.load("mine").d_sae
    8

    A release of another library, from the hub:

    >>> stack = ub.load("google/gemma-scope-2b-pt-res/layer_12/width_16k/average_l0_82")  # doctest: +SKIP
    """
    local = Path(path)
    if not local.exists() and is_hub_id(str(path)):
        local = fetch(str(path))
    return read_checked(local)
