"""Training any model of the interface in `t2t_jax.models` (sections 5.2 to 5.4)."""
