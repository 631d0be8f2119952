"""What needs a device: run with `--require-device`, where a skip is a failure."""
