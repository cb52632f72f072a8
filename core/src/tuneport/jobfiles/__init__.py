"""Job files: what people hand to an engine as YAML, objects of Kubernetes and tasks of SkyPilot.

They are read for what contradicts itself or would be refused, and for the commands that they start.
"""
