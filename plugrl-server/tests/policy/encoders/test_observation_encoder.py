"""From states and images to one vector."""

import pytest
import torch
from plugrl_server.policy.encoders.observation_config import ObservationConfig
from plugrl_server.policy.encoders.observation_encoder import ObservationEncoder
from torch.nn import functional

SHAPES = {"front": (84, 84, 4), "wrist": (36, 48, 3)}


def encoder(state_dim=3, shapes=None, **changes):
    torch.manual_seed(0)
    return ObservationEncoder(ObservationConfig(**changes), state_dim, SHAPES if shapes is None else shapes)


def pixels(n, shape):
    return torch.randint(256, (n, *shape), dtype=torch.uint8)


def test_states_alone_pass_through_without_parameters():
    through = encoder(shapes={})
    states = torch.randn(5, 3)
    assert through(states) is states
    assert through.out_dim == 3
    assert list(through.parameters()) == []


@pytest.mark.parametrize(("name", "width"), [("nature", 512), ("impala-small", 256)])
def test_two_images_of_different_size_and_states_stand_side_by_side(name, width):
    encode = encoder(image_encoder=name)
    features = {"states": torch.randn(2, 3), "images": {key: pixels(2, shape) for key, shape in SHAPES.items()}}
    encoded = encode(features)
    assert encoded.shape == (2, 3 + 2 * width) == (2, encode.out_dim)
    assert torch.equal(encoded[:, :3], features["states"])
    swapped = {"states": features["states"], "images": dict(reversed(features["images"].items()))}
    assert torch.equal(encode(swapped), encoded)


def test_images_alone_need_no_states():
    encode = encoder(state_dim=0, shapes={"front": (84, 84, 4)})
    assert encode({"images": {"front": pixels(2, (84, 84, 4))}}).shape == (2, 512)


def test_nature_is_the_literal_network_over_pixels_between_0_and_1():
    encode = encoder(state_dim=0, shapes={"front": (84, 84, 4)})
    image = pixels(2, (84, 84, 4))
    weights = iter(encode.parameters())
    x = torch.stack([image[..., channel] for channel in range(4)], 1).float() / 255
    for stride in (4, 2, 1):
        x = functional.conv2d(x, next(weights), next(weights), stride).relu()
    assert x.shape == (2, 64, 7, 7)
    expected = functional.linear(x.reshape(2, -1), next(weights), next(weights)).relu()
    torch.testing.assert_close(encode({"images": {"front": image}}), expected, atol=1e-5, rtol=1e-5)


def test_every_layer_is_orthogonal():
    for layer in encoder(shapes={"wrist": (36, 36, 3)}).modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
            weight = layer.weight.detach().flatten(1)
            gram = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
            torch.testing.assert_close(gram, 2 * torch.eye(len(gram)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_give_narrow_vectors(dtype):
    encode = encoder(shapes={"wrist": (36, 36, 3)}).to(dtype)
    features = {"states": torch.randn(2, 3, dtype=dtype), "images": {"wrist": pixels(2, (36, 36, 3))}}
    vectors = encode(features)
    assert vectors.dtype == dtype
    assert torch.isfinite(vectors).all()
