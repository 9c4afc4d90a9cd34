"""Teach and examine one stack of language models, with what is on disk taken as already done.

text.json            the checksum of the text that was begun with
tables.safetensors   tables of layers and heads, and of the first member of each setting `pattern.POSITION`
texts.json           the windows those patterns are of, in tokens; what counting pairs gives; how the models write
log.jsonl            beside what every log of models has: loss and perplexity of the batch, the length of the gradient
                     before it was clipped, and how many steps so far had one longer than 10
"""

from unbraid.config import Tree
from unbraid.errors import Refusal
from unbraid.examining.continuing import continue_text
from unbraid.examining.language import counted, first_windows, measures, predict, watch
from unbraid.examining.uniformity import diagnose, lines
from unbraid.files import read_record, write_arrays, write_json
from unbraid.progress import Watcher
from unbraid.runs import Run
from unbraid.signals import StopSignals
from unbraid.sweeps.grid import Member
from unbraid.sweeps.summary import label
from unbraid.sweeps.taught_work import TaughtWork
from unbraid.sweeps.trained_work import arrays
from unbraid.training.teaching import Lesson
from unbraid.worlds.text import Text

WRITTEN = 120
"""So many tokens the first member of each setting goes on for."""
PROMPT = 32
"""From so many tokens of what is to be predicted, or fewer where the context is shorter."""
LOGGED = 10
"""Of so many lines of the log, heads are told of once."""


class TextWork(TaughtWork):
    """What is left to do of one stack."""

    def __init__(self, run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals) -> None:
        super().__init__(run, index, group, watcher, signals)
        assert isinstance(self.asking, Text), self.asking
        self.world = self.asking

    def finish(self) -> None:
        self._refuse_another_text()
        super().finish()

    def line(self, report: Lesson) -> Tree:
        loss = report.terms["answers"].tolist()
        return {
            **super().line(report),
            "loss": loss,
            "perplexity": [measures(one, self.world)["perplexity"] for one in loss],
            "length": report.length.tolist(),
            "explosions": self.state.explosions.tolist(),
        }

    def look(self) -> None:
        """Every so often, say what the heads of the run's first model do, as the seed did."""
        due = self.state.step % (LOGGED * self.saving.log_every) == 0 or self.state.step == self.steps
        if self.index or self.state.step == 0 or not due:
            return
        self.watcher.say(f"step {self.state.step}, {label(self.group[0].setting)}")
        for line in lines(self.state.models.member(0), first_windows(self.world, 1)):
            self.watcher.say(line)

    def score(self) -> None:
        seconds = self.seconds
        found = predict(self.state.models, self.world, self.examining.heads, diagnose)
        shown = self.first_of_settings() if self.examining.shown else []
        tokens = first_windows(self.world, self.examining.shown)
        patterns = {f"pattern.{place}": watch(self.state.models.member(place), tokens) for place in shown}
        write_arrays(self.folder / "tables.safetensors", {**arrays(found.tables), **patterns})
        words = [{"words": self.world.words(row)} for row in tokens]
        write_json(self.folder / "texts.json", {"members": {str(place): words for place in shown}, **self._card()})
        self.write_scores(seconds, {**found.values, "explosions": self.state.explosions.double()}, found.chance, {})

    def _card(self) -> Tree:
        """What a report tells of the text, and how the models write."""
        settings = self.state.models.settings
        return {
            "heads": list(settings.head_labels),
            "irreps": settings.tree().get("irreps", ""),
            "characters_per_token": self.world.characters_per_token,
            "context": self.world.context,
            "unknown": self.world.unknown,
            "vocabulary": len(self.world.vocabulary),
            "bigram": counted(self.world)["bigram"],
            "samples": {str(place): self._sample(place) for place in self.first_of_settings()},
        }

    def _sample(self, place: int) -> Tree:
        start = self.world.made.validation[: min(PROMPT, self.world.context)].tolist()
        prompt = self.world.made.units.decode(start)
        (written,) = continue_text(self.state.models.member(place), self.world, prompt, WRITTEN)
        return {"prompt": prompt, "text": written}

    def _refuse_another_text(self) -> None:
        """A text that was changed meanwhile would be learned half and predicted as if it had been learned whole."""
        path, ours = self.folder / "text.json", self.world.made.fingerprint
        if not path.is_file():
            write_json(path, {"fingerprint": ours})
        elif read_record(path, "fingerprint")["fingerprint"] != ours:
            raise Refusal(
                f"the text '{self.world.text}' is not the one that {self.folder} was begun with; accepted: that text, "
                "or a new run"
            )
