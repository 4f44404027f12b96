"""A stand-in for KubeRay 1.7: it reconciles RayJobs and RayClusters as KubeRay does, so that an operator cannot tell.

`python -m tests.kuberay --kubeconfig FILE --mode pods|process --workdir DIR`

pods      writes Pods for a kubelet, or for kwok; the Ray job is a scripted driver (scripted_driver.py).
process   plays the kubelet too: each Pod is a real Ray node, a group of processes of this machine (kubelet.py).

Layers, each of which imports only those below it:
    __main__, standin                                    the command line, and a context manager for tests
    job_controller, cluster_controller, kubelet,         shells: they carry data to and from the API server
    scripted_jobs, ray_dashboard
    pods, objects, ray_start, cluster_status,            pure: objects in, objects out
    validation, job_state, containers, scripted_driver
    api, informer, workqueue, processes, names           tools
"""
