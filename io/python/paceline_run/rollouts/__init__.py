"""Rollouts that trainers take as they take their own: one module for each trainer."""
