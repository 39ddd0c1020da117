"""A policy that runs elsewhere: actions are asked of an openpi policy server."""
