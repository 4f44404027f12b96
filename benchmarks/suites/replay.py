"""What a replay buffer of stacked frames takes in memory, and how fast it fills and is drawn from."""

from benchmarks.model import Benchmark, Beside, Row, Target

REPLAY = Benchmark(
    name="replay-pong",
    title="Replay of Pong, every frame kept once",
    unit="transitions/s",
    conditions="Transitions that a DQN evaluator sampled from Pong (16 environments x 32 steps, two stacks of four "
    "84x84 frames each), one core.",
    rows=tuple(
        Row(key, label, kind, "replay_pong", {"seconds": 3, "what": key}, {"seconds": 1}, against="split")
        for key, label, kind in (
            ("split", "evaluator: take stacks apart, compress", "ours"),
            ("draw", "replay: draw 512 transitions, put stacks together", "ours"),
            ("stacked", "replay of whole stacks, uncompressed: draw 512", "limit"),
        )
    ),
    beside=(
        Beside(
            "smaller",
            "bytes of raw stacked transitions / bytes of replay that holds them",
            "draw",
            "times_smaller",
            "x",
        ),
    ),
    targets=(Target("smaller", 30),),
)
