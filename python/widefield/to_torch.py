"""Back to PyTorch: weights into the module that they came from, or a module of the list of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import UsageError
from .network import Network


def load_weights(network: Network, module: Any, weights: Mapping[str, Any]) -> Any:
    """Copies weights into a module by its own names; what the network does not have stays as it is."""
    import torch

    state = dict(module.named_parameters(remove_duplicate=False))
    state.update(module.named_buffers(remove_duplicate=False))
    missing = []
    with torch.no_grad():
        for name in weights:
            target = network.torch_names.get(name, name)
            if not target:  # no weight of the module
                continue
            if target not in state:
                missing.append(name)
                continue
            array = torch.from_numpy(np.array(weights[name], dtype=np.float32))
            tensor = state[target]
            if array.numel() != tensor.numel():
                raise UsageError(f"'{name}' has shape {tuple(array.shape)}, the module's '{target}' {tuple(tensor.shape)}")
            tensor.copy_(array.reshape(tensor.shape))
    if missing:
        raise UsageError(
            f"the module has no '{missing[0]}' ({len(missing)} of {len(weights)} weights have no place in it): give the "
            "module that from_torch() took, or none"
        )
    return module


def to_torch(network: Network, module: Any = None, weights: Mapping[str, Any] | None = None) -> Any:
    """See Network.to_torch()."""
    given = weights if weights is not None else network.weights
    if module is None:
        from .torch_module import module_of

        module = module_of(network)
        return load_weights(Network("", weights={}), module, given) if given is not None else module
    if given is None:
        raise UsageError("there are no weights: give those of a trainer, or call trainer.to_torch(module)")
    return load_weights(network, module, given)
