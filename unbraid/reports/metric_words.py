"""What every metric is in plain words, in the order they are shown, and which of them are shown where."""

from unbraid.reports.head_words import BELIEFS, HEADS
from unbraid.reports.line_words import LEADING, LINE
from unbraid.reports.thresholds import FOUND
from unbraid.reports.wording import Wording

METRICS = {
    **LINE,
    "mmcs": Wording("MMCS", "mean over true features of the cosine with the learned feature most like it"),
    "mcc": Wording("MCC", "mean cosine when true and learned features are matched one to one (Hungarian)"),
    "recovered": Wording(
        "Recovered", f"share of true features whose one-to-one match has a cosine of at least {FOUND}"
    ),
    "f1": Wording("F1", "does the match fire when the true feature does: harmonic mean of precision and recall"),
    "explained_variance": Wording("Explained variance", "share of the inputs' variance that the reconstruction keeps"),
    "l0": Wording(
        "L0",
        "learned features firing per sample; the ceiling is how many truly fire",
        "nearest the ceiling is best",
        ".2f",
    ),
    "dead": Wording("Dead", "learned features that never fired in scoring", "lower is better", ".1f"),
    "precision": Wording("Precision", "when the match fires, how often the true feature does too"),
    "recall": Wording("Recall", "when the true feature fires, how often its match does too"),
    "density": Wording(
        "Density",
        "share of samples in which a learned feature fires, on average",
        "lower is sparser",
        "#.3g",
    ),
    "reconstruction_error": Wording(
        "Reconstruction error",
        "mean squared error per dimension; chance is answering the mean",
        "lower is better",
        "#.3g",
    ),
    "loss": Wording(
        "Loss",
        "of dictionaries all costs of training together, at its last step; of language models nats a token over the "
        "whole part kept to be predicted, where chance is counting tokens",
        "lower is better, at equal weights",
        "#.4g",
    ),
    "training_l0": Wording(
        "L0 in training",
        "features per sample in the codes of the last step of training; a mechanism may act on those alone",
        "nearest what truly fires is best",
        "#.3g",
    ),
    "absorption": Wording(
        "Absorption",
        "how often a true child's match stands in for its parent's, which is silent; compare at equal L0",
        "lower is better",
    ),
    "absorption_fraction": Wording(
        "Absorption fraction",
        "the share of a parent that its children's matches write, where a child fires; compare at equal L0",
        "lower is better",
    ),
    "redundancy": Wording(
        "Redundancy",
        "mean over features that fire of the largest cosine of its direction with another's, in absolute value",
        "lower is better",
    ),
    "correlation": Wording(
        "Correlation",
        "mean absolute correlation of the 0.1 % of pairs of features that fire most alike; the truth has some too",
        "lower is better, down to the ceiling",
    ),
    "pair_overlap_steps": Wording(
        "Pairs selected again, next batch",
        "overlap (Jaccard) of the pairs pushed apart in consecutive batches; chance: as many pairs at random",
    ),
    "pair_overlap_seeds": Wording(
        "Pairs selected again, next seed",
        "the same between dictionaries of two seeds, features matched by direction",
    ),
    "loss_recovered": Wording(
        "Loss recovered",
        "what the model keeps of its loss with reconstructions spliced in: 1 as it was, 0 as with zeros",
    ),
    "kl_recovered": Wording("KL recovered", "the same of the divergence from the model as it was"),
    "ce": Wording("Cross-entropy", "of the next token with reconstructions spliced in", "lower is better"),
    "kl": Wording("KL", "divergence of the model with reconstructions from the model as it was", "lower is better"),
    "ce_clean": Wording("Cross-entropy, clean", "of the model as it is", "a fact of the model"),
    "ce_zero": Wording("Cross-entropy, zeros", "with zeros in place of activations", "a fact of the model"),
    "ce_mean": Wording("Cross-entropy, mean", "with their mean in place of activations", "a fact of the model"),
    "cosine": Wording("Cosine", "of reconstructions with activations"),
    **{
        f"probe_{k}": Wording(f"Probe, {k}", f"accuracy of a probe on {k} features a class; balanced, so chance is ½")
        for k in (1, 2, 5, 10, 20, 50, "full")
    },
    "letter_absorption": Wording(
        "Letter absorption",
        "how often another feature stands in for that of a word's first letter; compare at equal L0",
        "lower is better",
    ),
    "letter_absorption_fraction": Wording(
        "Letter absorption fraction", "the share of a first letter that other features write", "lower is better"
    ),
    "letter_splits": Wording("Letter splits", "features that mean one first letter", "1 is whole", ".2f"),
    "mmcs_larger": Wording(
        "MMCS with the next larger dictionary",
        "mean over its own entries of the cosine with the entry of the next larger dictionary most like it",
    ),
    "found": Wording(
        "Found", f"true features some entry has a cosine of at least {FOUND} with at the end", digits=".1f"
    ),
    "still_learned": Wording("Still learned", "of those, found by the same entry as at the check before", digits=".1f"),
    "still_growth": Wording(
        "Still learned, growth", "how many more since half of the training", "higher is still learning", ".1f"
    ),
    "learned_total": Wording(
        "Learned", "how often, over all checks, a true feature came to be found", "higher is more", ".1f"
    ),
    "unlearned_total": Wording(
        "Unlearned", "how often, over all checks, a true feature was found no more", "lower is better", ".1f"
    ),
    "moved_total": Wording(
        "Moved", "how often, over all checks, a true feature was found by another entry", "lower is better", ".1f"
    ),
    "mean_change": Wording(
        "Mean change",
        "1 − cosine of an entry's direction at the check before with the last, over those still learned",
        "lower is steadier",
        "#.3g",
    ),
    "dead_growth": Wording(
        "Dead, growth", "how many more entries are dead than at half of the training", "lower is better", ".1f"
    ),
    "directions": Wording("Directions", "how many directions the data allowed", "more can hold more", ".0f"),
    "evenness": Wording(
        "Evenness",
        "how evenly points fill the plane: entropy of a grid's cells, over that of uniform points",
        "1 is even",
    ),
    "hopkins": Wording("Hopkins", "0.5 where points lie as uniform ones, towards 1 in clusters", "higher is clustered"),
    "clusters": Wording("Clusters", "how many HDBSCAN finds, of the points not empty", "higher is more", ".0f"),
    "clustered": Wording("Clustered", "the share of these points that is in a cluster", "higher is clustered"),
    "empty": Wording("Empty", "the share of samples in which nothing fires", "a fact of the world", ".3f"),
    "accuracy": Wording(
        "Accuracy", "share of questions answered right on fresh stories; chance is the best of a few rules of thumb"
    ),
    "steps_to_95": Wording(
        "Steps to 95 %",
        "the first logged step whose batch was answered right in 95 of 100; missing where a replicate never got there",
        "lower is better",
        ".0f",
    ),
    "support_best": Wording(
        "Support, best head",
        "attention that the best head of any layer gives the supporting facts, at the token that asks; chance is the "
        "same model untaught",
    ),
    "support_mass": Wording(
        "Support, mean head",
        "the same over all heads of the last layer; chance is a head that looks at every token alike",
    ),
    "spread": Wording(
        "Spread",
        "effective number of tokens a head of the last layer looks at, over those it may look at",
        "1 is uniform, lower is sparser",
    ),
    "specialisation": Wording(
        "Specialisation",
        "how differently heads of the last layer look: mean Jensen-Shannon distance; chance is the same model untaught",
        "0 is alike, 1 is apart",
    ),
    "head_cosine": Wording(
        "Head cosine",
        "mean absolute cosine of what two heads of the last layer write of a story; chance is random directions",
        "lower is less redundant",
    ),
    "head_cka": Wording(
        "Head CKA",
        "linear CKA, debiased, of what two heads of the last layer write; chance is the same model untaught",
        "lower is less redundant",
    ),
    "separation": Wording(
        "Separation",
        "how purely each head tells one planted factor (DCI over what is explained); chance is the same model untaught",
    ),
    "importance_most": Wording(
        "Importance, most",
        "accuracy lost when the head that matters most is silenced",
        "a fact of the model",
    ),
    "idle": Wording(
        "Idle heads", "share of heads whose silence spoils less than 1 % of answers", "a fact of the model", ".2f"
    ),
    "quiet_drop": Wording(
        "Quietest head's drop",
        "accuracy lost in the group of questions that most needs the quietest head of the last layer; chance is groups "
        "dealt anew",
        "a fact of the model",
    ),
    "usage_evenness": Wording(
        "Evenness of use", "how evenly the heads of the last layer share the writing", "1 is even", ".3f"
    ),
    "routing_evenness": Wording(
        "Evenness of routing", "how evenly tokens are routed to the heads of the last layer", "1 is even", ".3f"
    ),
    "expert_evenness": Wording(
        "Evenness of experts", "how evenly tokens are routed to the experts of the last layer", "1 is even", ".3f"
    ),
    "attractors": Wording(
        "Attractors",
        "different places where the queries of a story come to rest in a Hopfield head, over its tokens",
        "1 is a place for each token",
    ),
    "recalled": Wording(
        "Recalled", "stored tokens that a resting place of a Hopfield head is made of", "1 is a single token", ".2f"
    ),
    "store_separation": Wording(
        "Separation of what is stored",
        "how much more a token stored in a Hopfield head is like itself than like any other, over its squared length",
        "higher is farther apart",
    ),
    "perplexity": Wording(
        "Perplexity",
        "exp of the loss: among how many equally likely tokens the next one might as well be drawn; chance is counting "
        "tokens; not to be compared between vocabularies",
        "lower is better",
        "#.4g",
    ),
    "bits_per_character": Wording(
        "Bits per character",
        "the loss in bits, a character of the text: comparable between vocabularies; chance is counting tokens",
        "lower is better",
    ),
    "explosions": Wording(
        "Explosions", "steps whose gradient was longer than 10 before it was clipped", "lower is better", ".1f"
    ),
    **HEADS,
    **BELIEFS,
    "parameters": Wording("Parameters", "numbers that are learned", "a fact of the model", ".0f"),
    "seconds": Wording(
        "Seconds", "of teaching a model, on this machine with whatever else it did", "lower is better", ".1f"
    ),
}
"""In the order they are shown."""

PICTURED = ("evenness", "hopkins", "clusters", "clustered")
TAUGHT = ("accuracy", "support_best", "support_mass", "spread", "separation", "steps_to_95", "parameters", "seconds")
WRITTEN = ("perplexity", "bits_per_character", "row_std", "sharpness")
JUDGED = ("loss_recovered", "probe_1")
MAIN = (
    *LEADING,
    "mmcs",
    "mcc",
    "recovered",
    "f1",
    "explained_variance",
    "l0",
    "dead",
    *JUDGED,
    *PICTURED,
    *TAUGHT,
    *WRITTEN,
)
FEW = (*LEADING, "mmcs", "f1", "l0", *JUDGED, *PICTURED, "accuracy", "support_best", "spread", *WRITTEN[:2])
PLOTTED = ("mmcs", "mcc", "recovered", "f1", "evenness", "hopkins", "clustered")
UNPLANTED = ("explained_variance",)
"""What is plotted, and ranked by, where no truth was planted."""


UNBOUNDED = {
    "l0": ("learned features firing per sample", "lower is sparser"),
    "training_l0": (METRICS["training_l0"].meaning, "lower is sparser"),
    "correlation": (METRICS["correlation"].meaning.removesuffix("; the truth has some too"), "lower is better"),
}
"""Meaning and which way is better, where no truth was planted: what the words above say of a ceiling is left out."""
BOUND = {"training_l0": "l0"}
"""Whose ceiling it is that a metric is held against, where it is not its own."""
