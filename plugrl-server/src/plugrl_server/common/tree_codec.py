"""Trees of plain values and arrays <-> JSON plus named tensors: what a checkpoint is made of, without pickle.

| value | stored as |
|---|---|
| None, bool, int, str, finite float | itself |
| other floats | `{"float": "inf"}`, `"-inf"`, `"nan"` |
| dict with str or int keys | `{"dict": [[key, value], ...]}`, in order; a subclass comes back as a dict |
| list, tuple | `{"list": [...]}`, `{"tuple": [...]}` |
| dense torch tensor | `{"tensor": name}`; tensors that are the same view of the same memory share a name |
| NumPy array of numbers, bools or text | `{"ndarray": name, "dtype": typestr, "shape": [...]}`, bytes in C order |

Everything else is refused with its path. Tensors come back on the CPU, and tied ones as one object.
"""

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from plugrl_server.learning.trees import is_tensor

if TYPE_CHECKING:
    import torch

Json: TypeAlias = Any

MAX_DEPTH = 64
"""Deeper trees are refused; a tree that contains itself is one."""

_ARRAY_KINDS = "biufcU"


class TreeCodecError(ValueError):
    """A value cannot be stored, or stored data does not describe a tree; the text starts with the path."""


def encode(tree: Any, path: str) -> tuple[Json, dict[str, "torch.Tensor"]]:
    """Return a tree as a JSON value and the tensors it names.

    Args:
        tree: The tree.
        path: What to call it in errors ("model").

    Raises:
        TreeCodecError: Something in it cannot be stored; the text names its path and type.
    """
    encoder = _Encoder()
    return encoder.encode(tree, path, 0), encoder.tensors


def decode(value: Json, tensors: dict[str, "torch.Tensor"], path: str) -> Any:
    """Return the tree that `encode` gave as `value` and `tensors`.

    Raises:
        TreeCodecError: The JSON value is no encoded tree, or names a tensor that is not there.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, dict) or not value:
        raise TreeCodecError(f"{path}: expected an encoded value, got {type(value).__name__}.")
    kind = next(iter(value))
    if kind not in _DECODERS:
        raise TreeCodecError(f"{path}: unknown kind of value {kind!r}.")
    try:
        return _DECODERS[kind](value, tensors, path)
    except TreeCodecError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise TreeCodecError(f"{path}: malformed {kind}: {type(error).__name__}: {error}") from error


class _Encoder:
    """One encoding: collects tensors and remembers which memory has a name already."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def encode(self, value: Any, path: str, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise TreeCodecError(f"{path}: nested deeper than {MAX_DEPTH} levels (does the tree contain itself?).")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, dict):
            return {"dict": [self._item(key, item, path, depth) for key, item in value.items()]}
        if type(value) in (list, tuple):
            items = [self.encode(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
            return {type(value).__name__: items}
        if is_tensor(value):
            return self._tensor(value, path)
        if type(value) is np.ndarray:
            return self._array(value, path)
        raise TreeCodecError(
            f"{path}: {type(value).__module__}.{type(value).__qualname__} cannot be stored; allowed are dict, list, "
            f"tuple, None, bool, int, float, str, torch.Tensor and numpy.ndarray."
        )

    def _item(self, key: Any, item: Any, path: str, depth: int) -> Json:
        if type(key) not in (str, int):
            raise TreeCodecError(f"{path}: key {key!r} is a {type(key).__name__}; keys must be str or int.")
        return [key, self.encode(item, f"{path}.{key}", depth + 1)]

    def _tensor(self, tensor: "torch.Tensor", path: str) -> Json:
        import torch

        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
        if not plain or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise TreeCodecError(
                f"{path}: only dense tensors can be stored, got {type(tensor).__name__} {tensor.layout}."
            )
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and view in self._names:
            return {"tensor": self._names[view]}
        # Always a copy of its own: safetensors refuses tensors that share memory in other ways.
        self._names[view] = self._store(tensor.detach().to("cpu", copy=True).contiguous(), path)
        return {"tensor": self._names[view]}

    def _array(self, array: np.ndarray, path: str) -> Json:
        if array.dtype.kind not in _ARRAY_KINDS:
            raise TreeCodecError(f"{path}: arrays of dtype {array.dtype} cannot be stored.")
        import torch

        # One copy, no more: a replay buffer may take half of the memory.
        data = torch.from_numpy(np.array(array, order="C", copy=True).reshape(-1).view(np.uint8))
        return {"ndarray": self._store(data, path), "dtype": array.dtype.str, "shape": list(array.shape)}

    def _store(self, tensor: "torch.Tensor", path: str) -> str:
        name = path if path not in self.tensors else f"{path}#{len(self.tensors)}"
        self.tensors[name] = tensor
        return name


def _decode_dict(value: Json, tensors: dict[str, "torch.Tensor"], path: str) -> Any:
    return {key: decode(item, tensors, f"{path}.{key}") for key, item in value["dict"]}


def _decode_list(value: Json, tensors: dict[str, "torch.Tensor"], path: str) -> Any:
    return [decode(item, tensors, f"{path}[{i}]") for i, item in enumerate(value["list"])]


def _decode_tuple(value: Json, tensors: dict[str, "torch.Tensor"], path: str) -> Any:
    return tuple(decode(item, tensors, f"{path}[{i}]") for i, item in enumerate(value["tuple"]))


def _decode_float(value: Json, _: dict[str, "torch.Tensor"], __: str) -> Any:
    return float(value["float"])


def _decode_tensor(value: Json, tensors: dict[str, "torch.Tensor"], path: str) -> Any:
    if value["tensor"] not in tensors:
        raise TreeCodecError(f"{path}: its tensor {value['tensor']!r} is missing.")
    return tensors[value["tensor"]]


def _decode_array(value: Json, tensors: dict[str, "torch.Tensor"], path: str) -> Any:
    if value["ndarray"] not in tensors:
        raise TreeCodecError(f"{path}: its array {value['ndarray']!r} is missing.")
    dtype = np.dtype(value["dtype"])
    if dtype.kind not in _ARRAY_KINDS:
        raise TreeCodecError(f"{path}: arrays of dtype {dtype} are not allowed.")
    return tensors[value["ndarray"]].numpy().copy().view(dtype).reshape(value["shape"])


_DECODERS = {
    "dict": _decode_dict,
    "list": _decode_list,
    "tuple": _decode_tuple,
    "float": _decode_float,
    "tensor": _decode_tensor,
    "ndarray": _decode_array,
}
