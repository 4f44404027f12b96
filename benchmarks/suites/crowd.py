"""How fast many perturbed policies act side by side: the inner loop of evolution strategies."""

from benchmarks.model import Benchmark, Row

SECONDS, QUICK = {"seconds": 3}, {"seconds": 1}


def _crowd(name: str, title: str, network: str) -> Benchmark:
    rows = (
        ("ours", "rlcore: the crowd that it chooses for this network", "ours"),
        ("mapped", "torch.func.vmap over the parameters", "limit"),
        ("in-turn", "torch, one slot after the other", "limit"),
        ("shared", "torch, all slots with one parameter vector", "limit"),
    )
    return Benchmark(
        name=name,
        title=title,
        unit="actions/s",
        conditions="16 environment slots, each with parameters of its own; one core. The last row is what equal "
        "parameters would allow.",
        rows=tuple(
            Row(key, label, kind, "infer_crowd", {**SECONDS, "what": key, "network": network}, QUICK)
            for key, label, kind in rows
        ),
    )


CROWD_MLP = _crowd("crowd-mlp", "Perturbed policies side by side: a 64x64 perceptron", "mlp")
CROWD_CNN = _crowd("crowd-cnn", "Perturbed policies side by side: a small CNN", "cnn")
