"""A stand-in for KubeRay 1.7: it reconciles RayJobs and RayClusters as KubeRay does, so that an operator cannot tell.

`python -m tests.kuberay --kubeconfig FILE --mode pods|process|node --workdir DIR`

pods      writes Pods for kwok; the Ray job is a scripted driver (scripted_driver.py).
process   plays the kubelet too: each Pod is a real Ray node, a group of processes of this machine (kubelet.py).
node      writes Pods for a real kubelet, whose addresses this machine must reach.

Each line imports from those below it only:
    __main__, standin, attempt                                      command line; context manager and jobs for tests
    job_controller, cluster_controller                              KubeRay
    scripted_jobs, scripted_state | kubelet, pod_runner, machine    what runs the pods of mode pods | process
    volumes, node, dashboard, events                                shells around the API server
    scripted_driver, containers, pod_status, pods, objects,         pure: objects in, objects out
    ray_start, cluster_status, job_state, validation
    informer, workqueue, api, processes, watchdog, addresses, names tools
"""
