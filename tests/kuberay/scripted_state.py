"""What scripted drivers know, in small files: a restart of the stand-in is as invisible to them as one of KubeRay."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from tests.kuberay.names import Object
from tests.kuberay.scripted_driver import Run, Script, Storage


@dataclasses.dataclass(kw_only=True)
class Driver:
    """A submitted job on a head."""

    run: Run
    job_id: str
    address: str
    storage_key: str
    namespace: str
    cluster: str
    job_name: str
    stopped: bool = False
    ended_s: float | None = None


class StateFiles:
    """A file for each driver, by its head's uid, and one for each job's storage. Written when something happens:
    how far a driver has come between two events follows from the time."""

    def __init__(self, folder: Path) -> None:
        self._drivers, self._storage = folder / "drivers", folder / "storage"
        self._written: dict[str, tuple[object, ...]] = {}
        for path in (self._drivers, self._storage):
            path.mkdir(parents=True, exist_ok=True)

    def load(self) -> tuple[dict[str, Storage], list[Driver]]:
        """Storage by its key, and the drivers."""
        storage = {path.stem: Storage(**json.loads(path.read_text())) for path in self._storage.glob("*.json")}
        drivers = []
        for path in self._drivers.glob("*.json"):
            values = json.loads(path.read_text())
            run = values.pop("run")
            script = Script(**run.pop("script"))
            of_job = storage.setdefault(values["storage_key"], Storage())
            drivers.append(Driver(**values, run=Run(**run, script=script, storage=of_job)))
        return storage, drivers

    def save(self, driver: Driver) -> None:
        """Writes what has changed since the last time, if anything has."""
        run, storage = driver.run, driver.run.storage
        state = (run.phase, run.request, run.hung, run.exit_code, driver.stopped, *dataclasses.astuple(storage))
        if self._written.get(run.head_uid) == state:
            return
        self._written[run.head_uid] = state
        _write(self._storage / f"{driver.storage_key}.json", dataclasses.asdict(storage))
        values = _fields(driver) | {"run": _fields(run) | {"script": dataclasses.asdict(run.script)}}
        del values["run"]["storage"]
        _write(self._drivers / f"{run.head_uid}.json", values)

    def forget(self, driver: Driver) -> None:
        """The head is gone, and its driver with it; the storage stays."""
        self._written.pop(driver.run.head_uid, None)
        (self._drivers / f"{driver.run.head_uid}.json").unlink(missing_ok=True)


def _fields(item: Any) -> Object:
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}


def _write(path: Path, values: Object) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(values))
    new.replace(path)
