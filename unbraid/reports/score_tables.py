"""Tables of scores: metric by metric a row a setting, with interval, chance and ceiling."""

from collections.abc import Sequence

from unbraid.reports import markup
from unbraid.reports.markup import Group
from unbraid.reports.run_results import Setting
from unbraid.reports.words import MISSING, describe_metric_of, interval, number


def score_table(settings: Sequence[Setting], metrics: Sequence[str]) -> str:
    groups: list[Group] = []
    for metric in metrics:
        words = describe_metric_of(metric, settings)
        rows = [[one.label, *score_cells(one, metric)] for one in settings if metric in one.scores]
        remark = f"{words.sentence} ({words.direction})" if words.sentence else ""
        groups.append(Group(rows, words.label, remark))
    return markup.table("Scores", ("setting", "mean", "95 % interval", "chance", "ceiling"), groups)


def score_cells(setting: Setting, metric: str) -> list[str]:
    if metric not in setting.scores:
        return [MISSING] * 4
    score = setting.scores[metric]
    value, *against = (number(metric, each) for each in (score.value, score.chance, score.ceiling))
    return [value, interval(metric, score.interval), *against]
