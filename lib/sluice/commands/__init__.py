"""The commands, one file each: options, open, loop, close."""
