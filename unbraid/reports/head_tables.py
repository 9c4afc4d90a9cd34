"""Tables of single heads: what each attends to, what it is needed for, how much it is used."""

from unbraid.reports import markup
from unbraid.reports.markup import Group
from unbraid.reports.run_results import RunResults
from unbraid.reports.tasks import Row, Task
from unbraid.reports.words import MISSING

COLUMNS = {
    "support": "support",
    "support_untrained": "before training",
    "attention_entropy": "attention entropy",
    "importance": "importance",
    "needed": "needed",
    "largest_drop": "largest drop",
    "dealt_drop": "by chance",
    "activity": "activity",
    "usage": "routed",
}
MEANING = (
    "Support: attention on the supporting facts at the question's last token, and the same before training. Attention "
    "entropy: effective tokens over allowed ones. Importance: accuracy lost without the head. Needed: share of answers "
    "that are right only with it. Largest drop: the accuracy lost in the group of questions (by answer, place in the "
    "story, or distance of the fact) that needs it most, and what random groups give. Activity: its share of what its "
    "layer writes."
)


def head_table(results: RunResults, task: Task, row: Row) -> str:
    """Every head of the first replicate, folded away."""
    stack, place = row.setting.places[0]
    tables = {name: results.tables[stack][name][place] for name in COLUMNS if name in results.tables[stack]}
    if "support" not in tables:
        return ""
    layers, heads = tables["support"].shape
    groups = [
        Group([[f"head {layer}.{head}", *_cells(tables, layer, head)] for head in range(heads)], f"Layer {layer}")
        for layer in range(layers)
    ]
    uniform = float(results.tables[stack]["uniform"][place])
    meaning = markup.paragraph(f"{MEANING} Uniform attention has a support of {uniform:.3f}.", "soft")
    table = markup.table("Heads", ("head", *[COLUMNS[name] for name in tables]), groups)
    return markup.fold(f"Every head in numbers: {task.name}, {row.name}", meaning + table)


def _cells(tables: dict, layer: int, head: int) -> list[str]:
    values = [float(table[layer, head]) for table in tables.values()]
    return [f"{value:.3f}".replace("-", "−") if value == value else MISSING for value in values]
