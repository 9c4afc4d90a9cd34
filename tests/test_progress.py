"""What a person sees while a run works, at the width of an ordinary terminal."""

import io
import time

from rich.console import Console

from unbraid.progress import Bar, Lines, OneOfMany, Silent

LINE = {
    "step": 50,
    "terms": {"reconstruction": [0.12, 0.14], "sparsity": [0.2, 0.2]},
    "l0": [5.0, 6.0],
    "mmcs": [0.9, 0.92],
}


def test_the_bar_shows_time_left_and_the_numbers_at_80_columns():
    out = io.StringIO()
    with Bar(Console(width=80, force_terminal=True, file=out, color_system=None)) as bar:
        bar.plan([(100, 1.0)])
        for step in (10, 30, 50):
            time.sleep(0.01)
            bar.advance(0, step)
        bar.show(0, LINE)
        bar.say("a checkpoint is damaged")
    shown = out.getvalue()
    assert "50%" in shown
    assert "left" in shown
    assert "MMCS 0.91  L0 5.5  reconstruction 0.13" in shown
    assert "a checkpoint is damaged" in shown


def test_plain_lines_tell_the_time_left():
    out = io.StringIO()
    lines = Lines(Console(width=200, file=out))
    lines.plan([(100, 1.0)])
    lines.advance(0, 0)
    time.sleep(0.01)
    lines.advance(0, 50)
    lines.show(0, LINE)
    assert out.getvalue().startswith("stack 1/1  step 50/100  MMCS 0.91  L0 5.5")
    assert out.getvalue().endswith("left\n")


def test_several_runs_are_one_work():
    whole = Silent()
    whole.plan([(100, 1.0), (50, 4.0), (100, 1.0)])
    second = OneOfMany(whole, first=1)
    second.plan([(50, 4.0), (100, 1.0)])
    second.advance(0, 25)
    assert whole.share == (100 + 25 * 4) / 400
    second.advance(1, 100)
    assert whole.share == 1


def test_a_language_model_shows_loss_and_perplexity_and_its_loss_once():
    out = io.StringIO()
    lines = Lines(Console(width=120, file=out))
    lines.plan([(100, 1.0)])
    terms = {"answers": [2.0, 3.0], "orthogonality": [0.1, 0.1]}
    lines.show(0, {"step": 50, "terms": terms, "accuracy": [0.5, 0.5], "loss": [2.0, 3.0], "perplexity": [7.4, 20.1]})
    assert "loss 2.5  perplexity 13.8  accuracy 0.5  orthogonality 0.1" in out.getvalue()
