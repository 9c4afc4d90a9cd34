"""Seed 003's claims that need a language model: the one comparison of its idea that was ever trained, on ours.

A sibling of the seed trained dictionaries on gemma-2-2b, layer 19, with the penalty on pairs and without it, nothing
else changed; one seed. Its figures are of one L1 weight; ours are means over those of the study, or at equal L0.
"""

from unbraid.studies.claims import Claim, Part, difference
from unbraid.studies.measures import EqualL0, Relative
from unbraid.studies.results import Where
from unbraid.studies.rules import Above, Below

STUDY = "003-stories"
PLAIN: Where = {"case": "plain"}
PENALTY: Where = {"case": "alone-pair_orthogonality"}
WHERE = "the penalty alone, gemma-2-2b layer 19, one seed"

ON_A_MODEL = (
    Claim(
        id="003-ab-loss",
        seed="003",
        statement="The penalty on co-active pairs alone lowers the training loss at equal L1.",
        published=f"loss 200.23 → 184.67, −8 % ({WHERE})",
        study=STUDY,
        parts=(
            Part(
                what="loss, penalty over plain, less 1",
                statistic=Relative(metric="loss", of=PENALTY, minus=PLAIN),
                rule=Below(),
            ),
        ),
        figures=("pareto-l0-explained_variance",),
    ),
    Claim(
        id="003-ab-probe",
        seed="003",
        statement="The penalty on co-active pairs alone makes single features tell more at equal L1.",
        published=f"accuracy of a probe on one feature .713 → .782 ({WHERE})",
        study=STUDY,
        parts=(difference("probe_1", "probe on one feature, penalty minus plain", PENALTY, PLAIN, Above()),),
        figures=("probing",),
    ),
    Claim(
        id="003-ab-fidelity",
        seed="003",
        statement="The penalty on co-active pairs alone keeps more of the model at equal L1.",
        published=f"CE score .789 → .878, cosine .770 → .820, L0 85 → 99 ({WHERE})",
        study=STUDY,
        parts=(
            difference("loss_recovered", "loss recovered, penalty minus plain", PENALTY, PLAIN, Above()),
            difference("cosine", "cosine with the activations, penalty minus plain", PENALTY, PLAIN, Above()),
        ),
        figures=("pareto-l0-loss_recovered",),
    ),
    Claim(
        id="003-ab-fidelity-equal-l0",
        seed="003",
        statement="Ours: the penalty on co-active pairs alone keeps more of the model at equal L0 too.",
        published=f"not told apart: CE score .789 → .878 as L0 rose from 85 to 99 ({WHERE})",
        study=STUDY,
        parts=(
            Part(
                what="loss recovered, penalty minus plain, at equal L0",
                statistic=EqualL0(metric="loss_recovered", of=PENALTY, minus=PLAIN),
                rule=Above(),
            ),
        ),
        figures=("adds-loss_recovered",),
    ),
    Claim(
        id="003-orthogonality-probing",
        seed="003",
        statement="Pushing the most co-active pairs apart improves probing.",
        published=f"probes on 1 and 5 features .713 → .782, .825 → .883 ({WHERE})",
        study=STUDY,
        parts=(
            Part(
                what="probe on one feature, penalty minus plain, at equal L0",
                statistic=EqualL0(metric="probe_1", of=PENALTY, minus=PLAIN),
                rule=Above(),
            ),
            Part(
                what="probe on five features, penalty minus plain, at equal L0",
                statistic=EqualL0(metric="probe_5", of=PENALTY, minus=PLAIN),
                rule=Above(),
            ),
        ),
        figures=("adds-probe_1", "adds-probe_5"),
    ),
)
