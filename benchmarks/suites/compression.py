"""LZ4 on batches as they travel from evaluators to the learner."""

from benchmarks.model import Benchmark, Beside, Row, Target

COMPRESSION = Benchmark(
    name="compression-pong",
    title="LZ4 on batches of Pong",
    unit="MB/s",
    conditions="A batch that a `PolicyEvaluator` sampled from Pong (16 environments x 32 steps of four 84x84 frames), "
    "10^6 bytes a MB of unpacked batch, one core. The limit is a copy of the same arrays.",
    rows=tuple(
        Row(key, label, kind, "pack_pong", {"seconds": 3, "what": key}, {"seconds": 1}, against="pack")
        for key, label, kind in (
            ("pack", "pack", "ours"),
            ("unpack", "unpack", "ours"),
            ("copy", "copy, no compression", "limit"),
        )
    ),
    beside=(Beside("smaller", "raw bytes / packed bytes", "pack", "compression_ratio", "x"),),
    targets=(Target("pack", 1000), Target("unpack", 1000), Target("smaller", 10)),
)
