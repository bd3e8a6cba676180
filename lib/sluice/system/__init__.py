"""What the operating system gives: files, maps, memory, processors, descriptors."""
