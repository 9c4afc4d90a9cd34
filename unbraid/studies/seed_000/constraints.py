"""Seed 000's claims on what constraints cost: at the seed's own table, on models that learn, by task and by strength.

In the seed's table nothing differs by more than luck (n = 1000, one seed), and no model has learned the task.
"""

from unbraid.studies.claims import Claim, Part, difference
from unbraid.studies.measures import Contrast
from unbraid.studies.results import Where
from unbraid.studies.rules import Below, Rule

TABLE, STUDY, STRONG = "000-published", "000-constraints", "000-strong"
NONE: Where = {"case": "none"}
NO_FIGURE = "none: one task, never learned"
CASES = ("orthogonality", "independence-published", "independence-corrected", "attention-entropy", "head-usage")
"""At the seed's weights; corrected unless said."""


def cost(case: str, what: str, rule: Rule, task: str = "") -> Part:
    """Accuracy with this case less accuracy without any, in the mean over tasks or on one."""
    where: Where = {"world.task": task} if task else {}
    tail = f" on {task}" if task else ""
    return difference(
        "accuracy", f"accuracy{tail}, {what} minus none", {"case": case, **where}, {**NONE, **where}, rule
    )


def costs_more(case: str, what: str, task: str, than: str = "one_fact") -> Part:
    """What a case costs on one task, less what it costs on another."""
    return Part(
        what=f"what {what} does to accuracy on {task}, less the same on {than}",
        statistic=Contrast(
            metric="accuracy",
            of={"case": case, "world.task": task},
            minus={**NONE, "world.task": task},
            than={"case": case, "world.task": than},
            than_minus={**NONE, "world.task": than},
        ),
        rule=Below(),
    )


def hurts_more(
    name: str, statement: str, task: str, seeds: dict[str, str], strong: dict[str, str]
) -> tuple[Claim, ...]:
    """The claim at the seed's weights, and again twenty times as strong in both forms."""
    figures = (f"cost-accuracy-{task}", "cost-accuracy-one-fact")
    return (
        Claim(
            id=f"000-{name}",
            seed="000",
            statement=statement,
            published=NO_FIGURE,
            study=STUDY,
            parts=tuple(costs_more(case, what, task) for case, what in seeds.items()),
            figures=figures,
        ),
        Claim(
            id=f"000-{name}-strong",
            seed="000",
            published=NO_FIGURE,
            statement=f"{statement[:-1]}, at twenty times the seed's weights.",
            study=STRONG,
            parts=tuple(costs_more(case, what, task) for case, what in strong.items()),
            figures=figures,
        ),
    )


CONSTRAINTS = (
    Claim(
        id="000-published-table",
        seed="000",
        statement="Constraints lower accuracy at fixed capacity, in the seed's own setting.",
        published="accuracy .370 → .375 with two constraints, .371 with all four; larger models .393 → .414",
        study=TABLE,
        parts=(
            difference(
                "accuracy", "accuracy, two constraints minus none", {"case": "ortho_mi"}, {"case": "vanilla"}, Below()
            ),
            difference(
                "accuracy", "accuracy, all minus none", {"case": "ortho_mi_attn_head"}, {"case": "vanilla"}, Below()
            ),
            difference(
                "accuracy",
                "accuracy of larger models, all minus none",
                {"case": "ortho_mi_attn_head_lrg_1"},
                {"case": "vanilla_lrg_1"},
                Below(),
            ),
        ),
        figures=("published-accuracy",),
    ),
    Claim(
        id="000-constraints-cost",
        seed="000",
        statement="Constraints lower the accuracy of models that learn, at the seed's weights.",
        published="said of its table, where no model learned the task",
        study=STUDY,
        parts=tuple(cost(case, case, Below()) for case in CASES),
        figures=("cost-accuracy-one-fact", "cost-accuracy-counting"),
    ),
    *(
        Claim(
            id=f"000-{name.replace('_', '-')}-cost",
            seed="000",
            statement=f"{words} lowers accuracy, at twenty times the seed's weight, in either form.",
            published=NO_FIGURE,
            study=STRONG,
            parts=tuple(
                cost(f"{name.replace('_', '-')}-{form}", f"{name} as {form}", Below())
                for form in ("published", "corrected")
            ),
            figures=("cost-accuracy-one-fact", "cost-accuracy-counting", "cost-accuracy-coreference"),
        )
        for name, words in (
            ("orthogonality", "Orthogonality of heads"),
            ("independence", "Independence of heads"),
            ("attention_entropy", "A penalty on the entropy of attention"),
            ("head_usage", "A penalty on the number of heads in use"),
        )
    ),
    *hurts_more(
        "entropy-counting",
        "The entropy penalty hurts counting, which needs attention on many tokens, more than one fact.",
        "counting",
        {"attention-entropy": "the entropy penalty"},
        {f"attention-entropy-{form}": f"the entropy penalty as {form}" for form in ("published", "corrected")},
    ),
    *hurts_more(
        "orthogonality-coreference",
        "Orthogonality hurts coreference, where several heads must use one person, more than one fact.",
        "coreference",
        {"orthogonality": "orthogonality"},
        {f"orthogonality-{form}": f"orthogonality as {form}" for form in ("published", "corrected")},
    ),
    *hurts_more(
        "independence-coreference",
        "Independence hurts coreference, where several heads must use one person, more than one fact.",
        "coreference",
        {f"independence-{form}": f"independence as {form}" for form in ("published", "corrected")},
        {f"independence-{form}": f"independence as {form}" for form in ("published", "corrected")},
    ),
)
