"""A local page that shows what a client's envs see and do while they run (`--viewer`)."""
