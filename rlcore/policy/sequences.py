"""From time-major fragments to batches: rows for feed-forward policies, sequences for recurrent ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlcore.sample_batch import STARTS, STATE_PREFIX, VALID, Fragment, SampleBatch


def flatten_rows(columns: Mapping[str, np.ndarray], fragment: Fragment) -> SampleBatch:
    """Columns [T, N, ...] to rows [B, ...], less those that are no transition, or none yet."""
    ready = fragment.ready
    if ready.all():
        flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in columns.items()}
    else:
        flat = {name: column[ready] for name, column in columns.items()}
    return SampleBatch(flat, policy_version=fragment.policy_version)


def flatten_sequences(columns: Mapping[str, np.ndarray], fragment: Fragment) -> SampleBatch:
    """Columns [T, N, ...] to sequences [L, S, ...] of L = `fragment.state_every` steps, the last one padded.

    An episode may end inside a sequence: `starts` tells where the state is zeroed, so nothing leaks from one episode to
    the next and nothing is cut. Padding and steps that are no transition have `valid` False.
    """
    every, length, slots = fragment.state_every, fragment.length, fragment.slots
    chunks = -(-length // every)
    padding = chunks * every - length

    def cut(column: np.ndarray) -> np.ndarray:
        if padding:
            column = np.concatenate([column, np.zeros((padding, *column.shape[1:]), column.dtype)])
        shaped = column.reshape(chunks, every, slots, *column.shape[2:]).swapaxes(0, 1)
        return np.ascontiguousarray(shaped.reshape(every, chunks * slots, *column.shape[2:]))

    sequences = {name: cut(column) for name, column in columns.items()}
    sequences[STARTS] = cut(fragment.starts)
    sequences[VALID] = cut(fragment.valid)
    for index, states in enumerate(fragment.states):
        sequences[f"{STATE_PREFIX}_{index}"] = states.reshape(chunks * slots, -1)
    batch = SampleBatch(sequences, policy_version=fragment.policy_version, time_major=True)
    # A minibatch of nothing but padding would have no mean.
    real = sequences[VALID].any(axis=0)
    return batch if real.all() else batch.take(np.flatnonzero(real))


def bootstrapped_sequences(columns: Mapping[str, np.ndarray], fragment: Fragment, length: int) -> SampleBatch:
    """Columns [T, N, ...] or [T + 1, N, ...] to sequences [L + 1, S, ...] whose last row only bootstraps.

    Row L of a sequence is the first of the next one (or the fragment's row T): its observation is the one that the
    value after row L - 1 is taken of, and its `valid` is False. Where the fragment ends inside a sequence, the row
    behind its last step does the same, and the rest is padding.

    Args:
        columns: what to cut; those with T + 1 rows give the bootstrap row its content.
        fragment: whose columns they are; of a recurrent policy with states every `length` steps.
        length: L, in steps.
    """
    steps, slots = fragment.length, fragment.slots
    chunks = -(-steps // length)
    rows = np.arange(length + 1)[:, None] + length * np.arange(chunks)

    def cut(column: np.ndarray) -> np.ndarray:
        missing = chunks * length + 1 - len(column)
        if missing:
            column = np.concatenate([column, np.zeros((missing, *column.shape[1:]), column.dtype)])
        return column[rows].reshape(length + 1, chunks * slots, *column.shape[2:])

    sequences = {name: cut(column) for name, column in columns.items()}
    # The row behind the last step begins an episode where the last step was a reset.
    sequences[STARTS] = cut(np.concatenate([fragment.starts, ~fragment.valid[-1:]]))
    sequences[VALID] = cut(fragment.valid)
    sequences[VALID][-1] = False
    for index, states in enumerate(fragment.states):
        sequences[f"{STATE_PREFIX}_{index}"] = states.reshape(chunks * slots, -1)
    batch = SampleBatch(sequences, policy_version=fragment.policy_version, time_major=True)
    real = sequences[VALID].any(axis=0)
    return batch if real.all() else batch.take(np.flatnonzero(real))
