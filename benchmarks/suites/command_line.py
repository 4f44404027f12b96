"""How long a person waits for the command line."""

from benchmarks.model import Benchmark, Row, Target

COMMAND_LINE = Benchmark(
    name="command-line",
    title="The command line, cold",
    unit="s",
    conditions="Wall clock of a new process, one core. Neither command may import ray, torch, numpy or gymnasium: the "
    "worker refuses to give a figure if one does.",
    rows=(
        Row("ours", "rlcore --help", "ours", "start_command", {"command": ["--help"]}),
        Row(
            "validate",
            "rlcore validate examples/cartpole-ppo.yaml",
            "ours",
            "start_command",
            {"command": ["validate", "examples/cartpole-ppo.yaml"]},
        ),
        Row("python", "python -c pass", "limit", "start_command", {"command": None}),
    ),
    targets=(Target("ours", 0.5, at_most=True), Target("validate", 1.0, at_most=True)),
    fewest_rounds=5,
)
