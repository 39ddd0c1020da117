"""Adam on flat tensors: torch's numbers, and float32 masters for everything narrower (rule 7)."""

import copy

import pytest
import torch
from plugrl_server.learning.optim import FlatAdam, Group
from torch import nn

INPUTS = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def loss(model):
    return (model(INPUTS.to(next(model.parameters()).dtype)).float() - 3).square().mean()


def parts(model):
    parameters = list(model.parameters())
    return parameters[:2], parameters[2:]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_it_is_adam_and_adamw_with_groups(weight_decay, clip):
    ours, theirs = network(), network()
    options = {"betas": (0.8, 0.99), "eps": 1e-5, "weight_decay": weight_decay}
    first, second = parts(ours)
    flat = FlatAdam([Group(first, 0.01, **options), Group(second, 0.1, **options)])
    first, second = parts(theirs)
    adam = torch.optim.AdamW([{"params": first, "lr": 0.01}, {"params": second, "lr": 0.1}], **options)
    for _ in range(20):
        flat.zero_grad()
        loss(ours).backward()
        flat.step(clip)
        adam.zero_grad()
        loss(theirs).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        adam.step()
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)


def test_learning_rates_may_change_between_steps():
    model = network()
    optimizer = FlatAdam([Group(list(model.parameters()), 0.1)])
    before = copy.deepcopy(model.state_dict())
    optimizer.groups[0].learning_rate = 0.0
    loss(model).backward()
    optimizer.step()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rule_7_updates_below_the_resolution_of_the_weights_add_up_in_a_float32_master(dtype):
    weight = nn.Parameter(torch.full((1,), 256.0, dtype=dtype))
    optimizer = FlatAdam([Group([weight], 0.01)])
    for _ in range(300):
        optimizer.zero_grad()
        (weight.float() * 2.0).sum().backward()
        optimizer.step()
    assert weight.dtype == dtype
    assert weight.item() == pytest.approx(253, abs=1)  # each step of 0.01 alone would be rounded away


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_state_round_trips_and_training_goes_on_the_same(dtype):
    first, second = network().to(dtype), network().to(dtype)
    one, two = (FlatAdam([Group(list(model.parameters()), 0.01)]) for model in (first, second))

    def train(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step(1.0)

    train(first, one)
    second.load_state_dict(first.state_dict())
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    train(first, one)
    train(second, two)
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_restored_state_leaves_options_alone():
    optimizer = FlatAdam([Group(list(network().parameters()), 0.01, eps=1e-3)])
    saved = FlatAdam([Group(list(network().parameters()), 0.5, eps=1.0)]).state_dict()
    optimizer.load_state_dict(saved)
    assert (optimizer.groups[0].learning_rate, optimizer.groups[0].eps) == (0.01, 1e-3)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_group_that_does_not_step_neither_moves_nor_counts(weight_decay, clip):
    """Its gradient does not count in the norm either; its own first step is then as large as any first one."""
    model = network()
    first, second = parts(model)
    optimizer = FlatAdam([Group(first, 0.01, weight_decay=weight_decay), Group(second, 0.1)])
    before, alone = optimizer.weights(0).clone(), copy.deepcopy(second)
    reference = FlatAdam([Group(alone, 0.1)])
    for _ in range(50):
        optimizer.zero_grad()
        loss(model).backward()
        for parameter, other in zip(second, alone, strict=True):
            other.grad.copy_(parameter.grad)
        optimizer.step(clip, [1])
        reference.step(clip)
    assert torch.equal(optimizer.weights(0), before)
    assert torch.equal(optimizer.weights(1), reference.weights(0))
    assert [group["step"] for group in optimizer.state_dict()["groups"]] == [0, 50]
    optimizer.step()
    change = (optimizer.weights(0) - before * (1 - 0.01 * weight_decay)).abs().max().item()
    assert change == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_state_of_one_group_goes_into_several_of_the_same_parameters(dtype):
    whole, apart = network().to(dtype), network().to(dtype)
    one, two = FlatAdam([Group(list(whole.parameters()), 0.01)]), FlatAdam([Group(p, 0.01) for p in parts(apart)])

    def train(model, optimizer):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    for _ in range(3):
        train(whole, one)
    apart.load_state_dict(whole.state_dict())
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    train(whole, one)
    train(apart, two)
    assert torch.equal(torch.cat([two.weights(0), two.weights(1)]), one.weights(0))


def test_state_of_other_groups_is_refused():
    first, second = parts(network())
    optimizer = FlatAdam([Group(first, 0.1), Group(second, 0.1)])
    with pytest.raises(ValueError, match="2 parameter groups, the saved one 1"):
        optimizer.load_state_dict(FlatAdam([Group(list(second), 0.1)]).state_dict())
    with pytest.raises(ValueError, match="1 parameter groups, the saved one 2"):
        FlatAdam([Group(list(network().parameters()), 0.1)]).load_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match="20 parameters, the saved one 6"):
        optimizer.load_state_dict(FlatAdam([Group(list(second), 0.1), Group(list(first), 0.1)]).state_dict())


def test_one_group_has_one_dtype():
    with pytest.raises(ValueError, match="share one dtype"):
        FlatAdam([Group([nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1, dtype=torch.bfloat16))], 0.1)])


def test_the_module_sees_loaded_and_updated_weights():
    model = network()
    optimizer = FlatAdam([Group(list(model.parameters()), 0.1)])
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    loss(model).backward()
    optimizer.step()
    assert model[2].bias.item() == pytest.approx(0.1, rel=1e-4)  # the first step of Adam is the learning rate


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_of_a_group_are_read_and_set_as_one_tensor(dtype):
    model = network().to(dtype)
    first, second = parts(model)
    optimizer = FlatAdam([Group(first, 0.1), Group(second, 0.1)])
    before = [parameter.detach().clone() for parameter in second]
    weights = optimizer.weights(0).clone()
    assert torch.equal(weights, torch.cat([parameter.detach().float().reshape(-1) for parameter in first]))
    optimizer.set_weights(0, weights + 0.001)
    assert torch.equal(optimizer.weights(0), weights + 0.001)  # also what narrow weights cannot tell apart
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in first]), (weights + 0.001).to(dtype))
    assert all(torch.equal(parameter, old) for parameter, old in zip(second, before, strict=True))


def test_gradients_are_what_a_step_reads():
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
    optimizer = FlatAdam([Group([first], 0.1), Group([second], 0.1)])
    for gradient in optimizer.gradients:
        gradient.fill_(3.0)
    assert first.grad.tolist() == [3.0, 3.0]
    assert second.grad.tolist() == [3.0]
