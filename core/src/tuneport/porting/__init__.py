"""Carries an experiment to another method by what its parameters mean."""
