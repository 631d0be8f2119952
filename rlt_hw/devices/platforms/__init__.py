"""One platform a file. `rlt_hw.devices.platform.platform_for` picks one."""
