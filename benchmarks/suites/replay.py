"""What a replay buffer of stacked frames takes in memory, and how fast it fills and is drawn from."""

from benchmarks.model import Benchmark, Row

REPLAY = Benchmark(
    name="replay-pong",
    title="Replay of Pong, every frame kept once",
    unit="transitions/s",
    conditions="Transitions that a DQN evaluator sampled from Pong (16 environments x 32 steps, two stacks of four "
    "84x84 frames each), one core. `details` in the results' JSON hold the sizes; `times_smaller` is bytes of the raw "
    "stacked transitions / bytes of the buffer that holds them.",
    rows=tuple(
        Row(key, label, kind, "replay_pong", {"seconds": 3, "what": key}, {"seconds": 1}, against="split")
        for key, label, kind in (
            ("split", "evaluator: take stacks apart, compress", "ours"),
            ("draw", "replay: draw 512 transitions, put stacks together", "ours"),
            ("stacked", "replay of whole stacks, uncompressed: draw 512", "limit"),
        )
    ),
)
