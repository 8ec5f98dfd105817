"""An embedded Kubernetes API server with a first-fit scheduler and the node, pod and job controllers.

It is as large as its contract suite: what the official client, kubectl and Airflow's provider need to launch pods, to
watch them and to lose them. Not served: exec, attach and port-forward; bodies in protobuf, which a few of kubectl's
imperative ``create`` commands send (``apply -f`` sends JSON); roles, quotas, custom resources, preemption by priority.
"""
