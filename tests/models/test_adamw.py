import torch

from unbraid.models.training import AdamW, FlatParameters


def test_it_is_torchs_own_with_a_rate_of_its_own_for_each_member(rng):
    shapes = {"a": (2, 3, 4), "b": (2, 5)}
    named = {name: torch.from_numpy(rng.standard_normal(shape)) for name, shape in shapes.items()}
    rates, decay = [0.1, 0.02], 0.3
    theirs = [{name: t[m].clone().requires_grad_() for name, t in named.items()} for m in range(2)]
    optimisers = [
        torch.optim.AdamW(one.values(), lr=rate, weight_decay=decay) for one, rate in zip(theirs, rates, strict=True)
    ]
    weights = FlatParameters.copy_of(named)
    adam = AdamW.start(weights)
    for age in range(1, 6):
        gradients = {name: torch.from_numpy(rng.standard_normal(shape)) for name, shape in shapes.items()}
        for m, (one, optimiser) in enumerate(zip(theirs, optimisers, strict=True)):
            for name, parameter in one.items():
                parameter.grad = gradients[name][m].clone()
            optimiser.step()
        adam.update(
            weights.row,
            FlatParameters.copy_of(gradients).row,
            torch.tensor(rates, dtype=torch.float64)[:, None],
            decay,
            age,
        )
    for m, one in enumerate(theirs):
        for name, parameter in one.items():
            torch.testing.assert_close(weights.named[name][m], parameter.detach(), rtol=0, atol=1e-12)


def test_names_and_rows_are_the_same_numbers():
    laid = FlatParameters.copy_of({"a": torch.arange(12.0).view(2, 3, 2), "b": torch.arange(4.0).view(2, 2)})
    assert laid.row.tolist() == [[0, 1, 2, 3, 4, 5, 0, 1], [6, 7, 8, 9, 10, 11, 2, 3]]
    laid.row.add_(1)
    assert laid.named["b"].tolist() == [[1, 2], [3, 4]]
    laid.named["a"].zero_()
    assert laid.row.tolist() == [[0, 0, 0, 0, 0, 0, 1, 2], [0, 0, 0, 0, 0, 0, 3, 4]]
