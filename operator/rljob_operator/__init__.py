"""The operator: turns RLJob resources into KubeRay RayJobs and keeps their status true.

    handlers   kopf's events fill a cache and a queue of job names
    reconcile  for one name: observe, decide (pure), write the status, act

Everything that decides is a pure function over plain data (decide, provision, status, failures, waiting, pools); only
reconcile, kube, driver_client, leader and server touch the world.
"""

__version__ = "0.1.0"
