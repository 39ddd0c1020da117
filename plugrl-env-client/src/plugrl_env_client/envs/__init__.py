"""Environment families, and the contract that every one of them keeps (`base_env`)."""
