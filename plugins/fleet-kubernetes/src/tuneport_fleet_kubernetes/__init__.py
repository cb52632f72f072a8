"""Runs plans on Kubernetes through its own API: as a RayJob, a JobSet, a TrainJob or a Job."""
