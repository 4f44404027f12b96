"""The benchmarks, in the order in which they are run and shown."""

from benchmarks.model import Benchmark
from benchmarks.suites.command_line import COMMAND_LINE
from benchmarks.suites.compression import COMPRESSION
from benchmarks.suites.control_plane import OPERATOR
from benchmarks.suites.crowd import CROWD_CNN, CROWD_MLP
from benchmarks.suites.ppo import PPO_CARTPOLE
from benchmarks.suites.replay import REPLAY
from benchmarks.suites.sampling import SAMPLING_CARTPOLE, SAMPLING_PENDULUM, SAMPLING_PONG

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        SAMPLING_CARTPOLE,
        SAMPLING_PENDULUM,
        SAMPLING_PONG,
        PPO_CARTPOLE,
        COMPRESSION,
        REPLAY,
        CROWD_MLP,
        CROWD_CNN,
        COMMAND_LINE,
        OPERATOR,
    )
}
