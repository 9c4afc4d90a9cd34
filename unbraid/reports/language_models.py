"""Say of language models of each kind what they are, with the defaults that a case leaves unwritten.

A report sees no model: what these settings are when nothing is written stands here too, and
`tests/reports/test_language_models.py` holds it against the models.
"""

from unbraid.config import JsonDict
from unbraid.reports.configurations import setting_configs
from unbraid.reports.phrases import either, phrase
from unbraid.reports.words import count

UNWRITTEN: dict[str, JsonDict] = {
    "transformer": {
        "layers": 2,
        "d_model": 64,
        "heads": 4,
        "d_ff": 256,
        "positions": "alibi",
        "attention": {"kind": "softmax"},
    },
    "gauge": {
        "layers": 1,
        "irreps": "5x0e + 3x1e + 1x2e",
        "d_model": None,
        "kappa": 1.0,
        "temperature": "head",
        "priors": "free",
        "init": "configured",
        "positions": "both",
        "self_attention": True,
        "alignment": 0.0,
        "prior": 0.0,
        "free_energy": None,
    },
}
TEMPERATURES = {
    "shared": "kappa · d_model/11 for all heads (shared)",
    "head": "kappa · √width of each head (head)",
    "learned": "learned for each head, from kappa · √width (learned)",
}
PRIORS = {
    "free": "free (a belief a token)",
    "gauge_fixed": "gauge_fixed (one belief for all tokens, each in its own frame)",
}
INITS = {
    "configured": "configured (tokens as far apart as configured)",
    "published": "published (tokens .02 apart, whatever is configured)",
}


def by_kind(config: JsonDict) -> dict[str, list[JsonDict]]:
    """The model of every setting with its defaults, by its kind."""
    found: dict[str, list[JsonDict]] = {}
    for _, tree in setting_configs(config):
        model = tree.get("model", {})
        kind = str(model.get("kind", "transformer"))
        found.setdefault(kind, []).append({**UNWRITTEN.get(kind, {}), **model})
    return found


def describe_models(config: JsonDict) -> list[str]:
    """A sentence for each kind of model that was trained; in a mixed run it says of how many settings."""
    models = by_kind(config)
    total = sum(map(len, models.values()))
    described = {"gauge": ("Gauge models", _gauge), "transformer": ("Plain transformers", _plain)}
    sentences: list[str] = []
    for kind, each in models.items():
        if kind in described:
            name, describe = described[kind]
            share = f" ({len(each)} of {count(total, 'setting')})" if len(models) > 1 else ""
            sentences.append(f"{name}{share}: {describe(each)}.")
    return sentences


def layers(config: JsonDict) -> str:
    return either(phrase(model.get("layers")) for each in by_kind(config).values() for model in each)


def _of(models: list[JsonDict], name: str, words: dict[str, str] | None = None) -> str:
    values = [phrase(model.get(name)) for model in models]
    return either((words or {}).get(value, value) for value in values)


def _plain(models: list[JsonDict]) -> str:
    looking = either(str(model["attention"].get("kind", "softmax")) for model in models)
    return (
        f"{_of(models, 'heads')} heads ({looking}), d_model {_of(models, 'd_model')}, d_ff {_of(models, 'd_ff')}, "
        f"positions {_of(models, 'positions')}"
    )


def _gauge(models: list[JsonDict]) -> str:
    """Heads, temperature, priors, init, costs, free energy; what is not usual only where it is so."""
    filled = [f"{model['irreps']}, scalars up to {model['d_model']}" for model in models if model["d_model"]]
    heads = either([*(str(model["irreps"]) for model in models if not model["d_model"]), *filled])
    parts = [
        f"heads are irreps of SO(3), {heads}",
        f"temperature {_of(models, 'temperature', TEMPERATURES)} with kappa {_of(models, 'kappa')}",
        f"priors {_of(models, 'priors', PRIORS)}",
        f"init {_of(models, 'init', INITS)}",
        f"in the loss alignment of beliefs weighs {_of(models, 'alignment')} and their distance from priors "
        f"{_of(models, 'prior')}",
        f"positions in {_of(models, 'positions', {'both': 'frame and mean', 'none': 'nothing'})}",
        _free_energy(models),
    ]
    if not all(model["self_attention"] for model in models):
        alone = "tokens do not see themselves"
        parts.append(alone if not any(model["self_attention"] for model in models) else f"in some settings {alone}")
    return "; ".join(parts)


def _free_energy(models: list[JsonDict]) -> str:
    used = [model["free_energy"] for model in models if model["free_energy"] is not None]
    if not used:
        return "no free energy: attention alone moves beliefs"
    iterations = either(phrase(one.get("iterations", 1)) for one in used)
    signs = [str(one.get("sign", "corrected")) for one in used]
    wrong = f", sign {either(signs)}" if set(signs) != {"corrected"} else ""
    some = "" if len(used) == len(models) else f" in {len(used)} of {count(len(models), 'setting')}"
    return f"after attention beliefs go down a free energy{some} (iterations {iterations}{wrong})"
