"""Training of any model with the interface of `t2t_jax.models` (sections 5.2 to 5.4)."""
