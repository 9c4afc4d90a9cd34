"""What a step takes grows as it should: with batch, width and free energy."""

from unbraid.models import FreeEnergy, Gauge, Transformer
from unbraid.models.profile import GAUGE_WIDTHS, KIB, PLAIN_HEADS, median_seconds, profile_gauge, step_memory


def test_the_widths_are_what_they_say():
    assert {Gauge(irreps=irreps).width for irreps in GAUGE_WIDTHS.values()} == set(GAUGE_WIDTHS)
    assert all(width % PLAIN_HEADS[width] == 0 for width in GAUGE_WIDTHS)


def test_memory_of_a_step_is_at_least_what_must_be_kept_and_grows_with_the_batch():
    """Logits and their gradient alone are 2 · batch · tokens · 100 numbers of 4 bytes."""
    model = Transformer(d_model=20, heads=4, layers=1, d_ff=80, positions="learned")
    small, large = (step_memory(model, 128, batch) for batch in (4, 64))
    grown = [KIB * (memory.peak - memory.before) for memory in (small, large)]
    assert grown[1] > 2 * 64 * 128 * 100 * 4
    assert grown[1] > 4 * grown[0] > 0


def test_seconds_are_the_median_of_each_after_a_first_call(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr("unbraid.models.profile.time.perf_counter", lambda: now[0])

    def work(name, seconds):
        def one():
            calls.append(name)
            now[0] += seconds[calls.count(name) - 1]

        return one

    found = median_seconds([work("a", [9, 1, 5, 2]), work("b", [9, 3, 3, 7])], 3)
    assert found == [2, 3]
    assert calls == ["a", "b"] * 4


def test_free_energy_is_a_step_size_more_of_a_gauge_model():
    plain, gauge, free = profile_gauge(tokens=8, batch=1, repeats=1, widths=[20])
    assert (plain.model, gauge.model, free.model) == ("plain", "gauge", "gauge with free energy")
    assert free.parameters == gauge.parameters + 1
    assert gauge.parameters == 100 * (20 + 20 + 3) + 8 * (3 + 20) + 100 * 20
    assert Gauge(irreps=GAUGE_WIDTHS[20], free_energy=FreeEnergy()).width == free.width
